package score

import "encoding/binary"

// codeSection is the number of the section with the functions' bodies.
const codeSection = 10

// splice puts bodies in place of the module's last two: the first for the last but one.
func splice(module []byte, bodies [][]byte) []byte {
	out := append([]byte(nil), module[:8]...)
	for rest := module[8:]; len(rest) > 0; {
		id := rest[0]
		size, n := binary.Uvarint(rest[1:])
		payload := rest[1+n : 1+n+int(size)]
		rest = rest[1+n+int(size):]
		if id == codeSection {
			payload = code(payload, bodies)
		}
		out = append(out, id)
		out = binary.AppendUvarint(out, uint64(len(payload)))
		out = append(out, payload...)
	}
	return out
}

// code is a code section with its last two bodies replaced, or the first of them.
func code(payload []byte, bodies [][]byte) []byte {
	count, n := binary.Uvarint(payload)
	out := binary.AppendUvarint(nil, count)
	payload = payload[n:]
	for i := range int(count) {
		size, n := binary.Uvarint(payload)
		body := payload[n : n+int(size)]
		payload = payload[n+int(size):]
		if k := i - (int(count) - 2); k >= 0 && k < len(bodies) {
			body = bodies[k]
		}
		out = binary.AppendUvarint(out, uint64(len(body)))
		out = append(out, body...)
	}
	return out
}
