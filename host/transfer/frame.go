package transfer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// kind is what a frame says.
type kind uint8

// The frames. Those of the sender are odd, those of the receiver even; cancel, cancelled and beat
// go either way.
const (
	kindOpen      kind = 1 // sender: the right to write, and what it holds
	kindAccept    kind = 2 // receiver: write, from this position on
	kindData      kind = 3 // sender: keys and values of some positions in one layer
	kindAck       kind = 4 // receiver: all below the seal lies in the pages
	kindSeal      kind = 5 // sender: all below this position was sent
	kindRefuse    kind = 6 // receiver: no, and why; nothing follows
	kindCancel    kind = 7 // give up, and why
	kindCancelled kind = 8 // the answer to cancel: nothing follows
	kindBeat      kind = 9 // still here

	// Before the opening frame, between two processes on one host.
	kindWay    kind = 10 // receiver: a nearer way to reach it
	kindNearby kind = 11 // sender: is there a nearer way?

	// Over a connection with a lane.
	kindTaken  kind = 12 // receiver: so many layers were taken from the lane
	kindPlaced kind = 13 // sender: keys and values of some positions in one layer lie in the lane

	lastKind = kindPlaced
)

func (k kind) String() string {
	names := [...]string{"", "open", "accept", "data", "ack", "seal", "refuse", "cancel",
		"cancelled", "beat", "way", "nearby", "taken", "placed"}
	if int(k) < len(names) && k != 0 {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// The header of every frame, little-endian; PROTOCOL.md has the picture.
const (
	headerSize   = 24
	atVersion    = 4
	atKind       = 5
	atFlags      = 6
	atEpoch      = 8
	atLength     = 16
	atChecksum   = 20
	dataHead     = 16 // in front of the KV of a data frame: its place and its checksum
	dataHeadSize = headerSize + dataHead
)

// magic starts every frame. Its first byte is no ASCII letter, which HTTP starts with.
const magic = "\xF7KVT"

// Token is the right to write a lease: 128 random bits. It is never printed.
type Token [16]byte

// String keeps the token out of logs.
func (Token) String() string { return "(token)" }

// lengths is the least and the most payload of a kind.
func (k kind) lengths() (least, most int) {
	switch k {
	case kindOpen:
		return openFixedSize, maxOpening
	case kindAccept, kindTaken:
		return 4, 4
	case kindPlaced:
		return dataHead, dataHead
	case kindData:
		return dataHead + 1, dataHead + MaxFrame
	case kindSeal, kindAck:
		return sealSize, sealSize
	case kindRefuse, kindCancel:
		return 3, 3 + maxText
	case kindWay:
		return 3, 3 + maxWay
	}
	return 0, 0 // cancelled, beat, nearby
}

// early says that a kind is read by ends that may not know the token and epoch.
func (k kind) early() bool {
	return k == kindOpen || k == kindRefuse || k == kindNearby || k == kindWay
}

// frame is one decoded frame. The payload is valid until the decoder is used again.
type frame struct {
	kind    kind
	epoch   uint64
	payload []byte
}

// pass is what every frame after the opening must carry: the epoch in its header and the token,
// which starts its checksum, so that a frame of another lease cannot be taken for one of this.
type pass struct {
	epoch uint64
	token Token
}

// checksum covers token, header and payload; of a data frame's payload only the head, which holds
// the checksum of the rest. Frames that are read by ends that may not know the token start from
// sixteen zero bytes.
func checksum(k kind, token Token, header, payload []byte) uint32 {
	if k.early() {
		token = Token{}
	}
	if k == kindData {
		payload = payload[:dataHead]
	}
	sum := crc32.Update(0, crc32.IEEETable, token[:])
	sum = crc32.Update(sum, crc32.IEEETable, header[:atChecksum])
	return crc32.Update(sum, crc32.IEEETable, payload)
}

// putHeader completes a frame in place: whole is a header's room and the payload behind it.
func putHeader(whole []byte, k kind, p pass) {
	copy(whole, magic)
	whole[atVersion], whole[atKind] = ProtocolVersion, byte(k)
	binary.LittleEndian.PutUint16(whole[atFlags:], 0)
	binary.LittleEndian.PutUint64(whole[atEpoch:], p.epoch)
	binary.LittleEndian.PutUint32(whole[atLength:], uint32(len(whole)-headerSize))
	sum := checksum(k, p.token, whole[:headerSize], whole[headerSize:])
	binary.LittleEndian.PutUint32(whole[atChecksum:], sum)
}

// appendFrame adds a frame with the given payload to dst.
func appendFrame(dst []byte, k kind, p pass, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerSize)...)
	dst = append(dst, payload...)
	putHeader(dst[start:], k, p)
	return dst
}

// place says where the keys and values of a data frame belong: count positions of one layer.
type place struct{ model, layer, position, count int }

// put writes the head of a data frame that carries kv.
func (p place) put(head, kv []byte) {
	binary.LittleEndian.PutUint16(head[0:], uint16(p.model))
	binary.LittleEndian.PutUint16(head[2:], uint16(p.layer))
	binary.LittleEndian.PutUint32(head[4:], uint32(p.position))
	binary.LittleEndian.PutUint32(head[8:], uint32(p.count))
	binary.LittleEndian.PutUint32(head[atSum:], crc32.ChecksumIEEE(kv))
}

// laneStep is the unit of places in a lane, in bytes.
const laneStep = 256

// putPlaced writes the payload of a placed frame: a place, and where in the lane its keys and
// values lie.
func (p place) putPlaced(head []byte, at int) {
	p.put(head, nil)
	binary.LittleEndian.PutUint32(head[atSum:], uint32(at/laneStep))
}

// readLaneAt is where in the lane the keys and values of a placed frame lie, in bytes.
func readLaneAt(head []byte) int { return laneStep * int(binary.LittleEndian.Uint32(head[atSum:])) }

// atSum is where a data frame's head has the checksum of its keys and values.
const atSum = 12

func readPlace(src []byte) place {
	return place{
		model:    int(binary.LittleEndian.Uint16(src[0:])),
		layer:    int(binary.LittleEndian.Uint16(src[2:])),
		position: int(binary.LittleEndian.Uint32(src[4:])),
		count:    int(binary.LittleEndian.Uint32(src[8:])),
	}
}

// seal is the payload of seal and ack: everything below end, so many bytes of KV, with this digest,
// counted from the opening frame of the connection.
type seal struct {
	end    int
	bytes  int64
	digest digest
}

const sealSize = 4 + 8 + digestSize

func (s seal) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.end))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.bytes))
	return s.digest.append(dst)
}

func readSeal(src []byte) seal {
	return seal{
		end:    int(binary.LittleEndian.Uint32(src)),
		bytes:  int64(binary.LittleEndian.Uint64(src[4:])),
		digest: readDigest(src[12:]),
	}
}

// maxText bounds every text in a frame: a detail, a name, a value.
const maxText = 1024

// appendReason is the payload of refuse and cancel: the reason's number and a text.
func appendReason(dst []byte, e *Error) []byte {
	return appendText(append(dst, byte(e.Reason)), e.Detail)
}

// readReason reads what the peer gave as its reason. Unknown numbers are Malformed, the text is
// taken as it is: whoever prints it quotes it.
func readReason(src []byte) (*Error, bool) {
	n := int(binary.LittleEndian.Uint16(src[1:]))
	if n != len(src)-3 {
		return nil, false
	}
	reason := Reason(src[0])
	if reason < Malformed || reason > PageFault {
		reason = Malformed
	}
	return &Error{Reason: reason, Detail: printable(string(src[3:])), Remote: true}, true
}

// decoder cuts a stream of bytes into frames. Its buffer grows with what has arrived, never beyond
// one frame and a header.
type decoder struct {
	bound int // most payload of a data frame here; 0 until the opening was accepted
	buf   []byte
	have  int
	spent int // bytes of the frame that next returned last
}

// firstBuffer is the buffer before anything is known of the peer.
const firstBuffer = 4 << 10

// space is where the next bytes of the stream are to be put: the rest of the frame under way and
// the header behind it, as far as the buffer may grow already.
func (d *decoder) space() []byte {
	d.drop()
	want := headerSize
	if d.have >= headerSize {
		want += headerSize + int(binary.LittleEndian.Uint32(d.buf[atLength:]))
	}
	if want > len(d.buf) {
		size := min(want, max(firstBuffer, 2*d.have))
		if size > len(d.buf) {
			d.buf = append(make([]byte, 0, size), d.buf[:d.have]...)[:size]
		}
	}
	return d.buf[d.have:min(want, len(d.buf))]
}

// filled says that so many bytes of space were written.
func (d *decoder) filled(n int) { d.have += n }

// drop forgets the frame that next returned.
func (d *decoder) drop() {
	if d.spent > 0 {
		copy(d.buf, d.buf[d.spent:d.have])
		d.have -= d.spent
		d.spent = 0
	}
}

// next is the next whole frame, if there is one. A header is judged as soon as it is whole, so
// that no buffer grows for a frame that would be refused.
func (d *decoder) next(p pass) (f frame, ok bool, err *Error) {
	d.drop()
	if d.have < headerSize {
		return frame{}, false, nil
	}
	header := d.buf[:headerSize]
	f = frame{kind: kind(header[atKind]), epoch: binary.LittleEndian.Uint64(header[atEpoch:])}
	length := int(binary.LittleEndian.Uint32(header[atLength:]))
	if err := d.judge(header, f.kind, length); err != nil {
		return frame{}, false, err
	}
	if d.have < headerSize+length {
		return frame{}, false, nil
	}
	f.payload = d.buf[headerSize : headerSize+length]
	if !f.kind.early() && f.epoch != p.epoch {
		return frame{}, false, fault(NotFound, "a frame of epoch %d, this is %d", f.epoch, p.epoch)
	}
	sum := checksum(f.kind, p.token, header, f.payload)
	if sum != binary.LittleEndian.Uint32(header[atChecksum:]) ||
		f.kind == kindData && !intact(f.payload) {
		return frame{}, false, fault(Checksum, "the checksum of a frame (%v) does not fit", f.kind)
	}
	d.spent = headerSize + length
	return f, true, nil
}

// intact says whether the keys and values of a data frame are what its head says.
func intact(payload []byte) bool {
	return crc32.ChecksumIEEE(payload[dataHead:]) == binary.LittleEndian.Uint32(payload[atSum:])
}

func (d *decoder) judge(header []byte, k kind, length int) *Error {
	if string(header[:len(magic)]) != magic {
		return fault(Malformed, "the magic bytes are missing")
	}
	if v := header[atVersion]; v != ProtocolVersion {
		return fault(Incompatible, "protocol: here %d, there %d", ProtocolVersion, v)
	}
	if k < kindOpen || k > lastKind {
		return fault(Malformed, "unknown frame (%v)", k)
	}
	if flags := binary.LittleEndian.Uint16(header[atFlags:]); flags != 0 {
		return fault(Malformed, "unknown flags %#x in a frame (%v)", flags, k)
	}
	least, most := k.lengths()
	if k == kindData {
		most = dataHead + d.bound
	}
	if length < least || length > most {
		return fault(Malformed, "a frame (%v) of %d bytes, allowed are %d to %d",
			k, length, least, most)
	}
	return nil
}
