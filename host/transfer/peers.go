package transfer

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Peers is whom a Sender may dial: networks and host names, and nobody else. It never changes.
type Peers struct {
	networks []netip.Prefix
	names    []string // lower case
}

// loopback is the rule when none is given.
var loopback = []string{"127.0.0.0/8", "::1/128"}

// ParsePeers reads networks ("10.0.0.0/24"), addresses and host names; nil means loopback only.
func ParsePeers(list []string) (*Peers, error) {
	if list == nil {
		list = loopback
	}
	p := &Peers{}
	for _, entry := range list {
		if network, err := netip.ParsePrefix(entry); err == nil {
			p.networks = append(p.networks, network.Masked())
		} else if addr, err := netip.ParseAddr(entry); err == nil {
			p.networks = append(p.networks, netip.PrefixFrom(addr, addr.BitLen()))
		} else if isHostName(entry) {
			p.names = append(p.names, strings.ToLower(entry))
		} else {
			return nil, fmt.Errorf("peer %q: neither a network, an address nor a host name", entry)
		}
	}
	return p, nil
}

// allowsAddr says whether addr lies in one of the networks. An IPv4 address in IPv6 clothes is
// judged as what it is, and a zone never matches.
func (p *Peers) allowsAddr(addr netip.Addr) bool {
	addr = addr.Unmap()
	for _, network := range p.networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// allowsName says whether the host name is listed: then its address is taken as resolved.
func (p *Peers) allowsName(name string) bool {
	for _, listed := range p.names {
		if strings.EqualFold(listed, name) {
			return true
		}
	}
	return false
}

// endpoint is an address of a metadata string: a literal address or a host name, and a port.
type endpoint struct {
	addr netip.Addr // invalid where name is set
	name string
	port uint16
}

// parseEndpoint reads host:port and nothing else: no scheme, no path, no user.
func parseEndpoint(text string) (endpoint, *Error) {
	if full, err := netip.ParseAddrPort(text); err == nil && full.Port() != 0 {
		return endpoint{addr: full.Addr().Unmap(), port: full.Port()}, nil
	}
	host, digits, ok := strings.Cut(text, ":")
	port, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || port == 0 || !isHostName(host) {
		return endpoint{}, fault(InvalidMetadata, "address %s is not host:port", show(text))
	}
	return endpoint{name: host, port: uint16(port)}, nil
}

// check is what can be said before a name is resolved: a literal address must be allowed.
func (p *Peers) check(e endpoint) *Error {
	if e.name == "" && !p.allowsAddr(e.addr) {
		return fault(InvalidMetadata, "address %v is not among transfer.peers", e.addr)
	}
	return nil
}

// judge is the addresses of e, as resolved, that may be dialled, or why there is none. Those of a
// listed name are taken as they are, all others must lie in a listed network.
func (p *Peers) judge(e endpoint, found []netip.Addr) ([]netip.AddrPort, *Error) {
	var allowed []netip.AddrPort
	for _, addr := range found {
		if p.allowsAddr(addr) || p.allowsName(e.name) {
			allowed = append(allowed, netip.AddrPortFrom(addr.Unmap(), e.port))
		}
	}
	if len(allowed) > 0 {
		return allowed, nil
	}
	if bad := p.check(e); bad != nil {
		return nil, bad
	}
	return nil, fault(InvalidMetadata, "address %s %v is not among transfer.peers", e.name, found)
}

// isHostName accepts letters, digits, hyphens, underscores and dots; the last label must not be a
// number, so that no odd spelling of an IPv4 address passes for a name.
func isHostName(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' ||
			strings.Trim(label, hostLetters) != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9'
}

const hostLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
