package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// series are the values of one look at /metrics, by name with labels.
type series map[string]float64

// scrape reads /metrics of an instance.
func scrape(url string) (series, error) {
	response, err := http.Get(url + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	all := series{}
	lines := bufio.NewScanner(io.LimitReader(response.Body, 4<<20))
	for lines.Scan() {
		line := lines.Text()
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 || line[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics line %q: %w", line, err)
		}
		all[line[:cut]] = value
	}
	return all, lines.Err()
}

// sum adds up a family's series that have all the labels, each as name="value".
func (s series) sum(name string, labels ...string) float64 {
	total := 0.0
	for key, value := range s {
		if s.matches(key, name, labels) {
			total += value
		}
	}
	return total
}

func (s series) matches(key, name string, labels []string) bool {
	family, rest, _ := strings.Cut(key, "{")
	if family != name {
		return false
	}
	for _, label := range labels {
		if !strings.Contains(","+strings.TrimSuffix(rest, "}"), ","+label) {
			return false
		}
	}
	return true
}

// atRest says what of an instance's pages, leases, transfers and requests is not as it must be when
// nobody wants anything: every page free or cached, none without an owner.
func (s series) atRest() error {
	var held []string
	for _, watched := range [][]string{
		{"engine_kv_pages", `state="pinned"`}, {"engine_kv_pages", `state="quarantine"`},
		{"engine_kv_pages_leaked"}, {"engine_leases"}, {"engine_requests"},
		{"engine_transfers_inflight"},
	} {
		for key, value := range s {
			if s.matches(key, watched[0], watched[1:]) && value != 0 {
				held = append(held, fmt.Sprintf("%s %v", key, value))
			}
		}
	}
	capacity := s.sum("engine_kv_page_capacity")
	free := s.sum("engine_kv_pages", `state="free"`)
	if cached := s.sum("engine_kv_pages", `state="evictable"`); capacity == 0 ||
		free+cached != capacity {
		held = append(held, fmt.Sprintf("%v pages are free and %v cached, of %v", free, cached,
			capacity))
	}
	if held == nil {
		return nil
	}
	return errors.New(strings.Join(held, "\n"))
}

// rest waits until the instances have nothing left to do, and wants nothing left behind.
func rest(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, patience, func() error {
			s, err := scrape(n.internal)
			if err != nil {
				return err
			}
			if err := s.atRest(); err != nil {
				return fmt.Errorf("%s: %w", n.internal, err)
			}
			return nil
		})
	}
}

// metric reads a family's sum now.
func (n *node) metric(name string, labels ...string) float64 {
	n.t.Helper()
	url := n.internal
	if url == "" {
		url = n.api
	}
	s, err := scrape(url)
	if err != nil {
		n.t.Fatal(err)
	}
	return s.sum(name, labels...)
}

func TestSeriesMatchWholeLabels(t *testing.T) {
	s := series{`a{role="x",old_state="free"}`: 1, `a{role="x",state="free"}`: 2,
		`ab{state="free"}`: 4}
	if got := s.sum("a", `state="free"`); got != 2 {
		t.Error(got)
	}
	if got := s.sum("a"); got != 3 {
		t.Error(got)
	}
}
