package fuel

// appendU32 writes an unsigned LEB128 number.
func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// appendS64 writes a signed LEB128 number.
func appendS64(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c < 0x40 || v == -1 && c >= 0x40 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// sizeU32 is how many bytes appendU32 writes.
func sizeU32(v uint32) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func appendName(b []byte, s string) []byte {
	return append(appendU32(b, uint32(len(s))), s...)
}

func appendSection(b []byte, id byte, payload []byte) []byte {
	b = appendU32(append(b, id), uint32(len(payload)))
	return append(b, payload...)
}
