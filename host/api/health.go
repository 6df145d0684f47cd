package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// reply writes v as JSON with status 200.
func (s *Server) reply(x *exchange, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.fail(x, openai.Errorf(openai.CodeInternal, "", "write the answer: %v", err))
		return
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusOK)
	_, _ = x.w.Write(data) // A client that is gone notices nothing.
}

// live says that the process answers.
func (s *Server) live(x *exchange) { s.reply(x, map[string]string{"status": "live"}) }

// pathProgress answers 503 when work waits and nothing runs.
const pathProgress = "/health/progress"

// healthRoutes are what probes ask, on every listener.
func (s *Server) healthRoutes() []route {
	return []route{
		{"GET", "/live", s.live}, {"GET", "/ready", s.ready}, {"GET", "/health", s.ready},
		{"GET", pathProgress, s.progress},
	}
}

// progress says whether what waits gets on.
func (s *Server) progress(x *exchange) {
	if since := s.options.Stalled(); s.options.Stall > 0 && since >= s.options.Stall {
		openai.WriteError(x.w, openai.Errorf(openai.CodeNoProgress, "",
			"work has waited for %v and nothing has run (scheduler.stall is %v)",
			since.Round(time.Millisecond), s.options.Stall))
		return
	}
	s.reply(x, map[string]string{"status": "moving"})
}

// ready says whether requests are taken now.
func (s *Server) ready(x *exchange) {
	e := s.options.Ready()
	if e == nil {
		e = s.options.Leaving()
	}
	if e != nil {
		openai.WriteError(x.w, e)
		return
	}
	s.reply(x, map[string]string{"status": "ready"})
}

func (s *Server) metrics(x *exchange) { s.options.Metrics.ServeHTTP(x.w, x.r) }

// models lists the served names.
func (s *Server) models(x *exchange) {
	m, e := s.options.Model()
	if e != nil {
		s.fail(x, e)
		return
	}
	list := openai.ModelList{Object: openai.ObjectList, Data: []openai.Model{}}
	for _, name := range m.Names {
		if x.visit.Allows(name) != nil {
			continue
		}
		list.Data = append(list.Data, m.described(name))
	}
	s.reply(x, list)
}

// oneModel describes the model that the path names; names may hold slashes.
func (s *Server) oneModel(x *exchange) {
	m, fault := s.options.Model()
	name := strings.TrimPrefix(x.r.URL.Path, "/v1/models/")
	if fault == nil {
		fault = m.named(name)
	}
	if fault == nil {
		fault = x.visit.Allows(name)
	}
	if fault != nil {
		s.fail(x, fault)
		return
	}
	s.reply(x, m.described(name))
}

func (m *Model) described(name string) openai.Model {
	return openai.Model{ID: name, Object: openai.ObjectModel, Created: m.Created.Unix(),
		OwnedBy: "engine", MaxModelLen: m.Context}
}
