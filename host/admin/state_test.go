package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestStateAndDashboard: both are there for the operator, and a web page gets neither the state nor
// anything that acts.
func TestStateAndDashboard(t *testing.T) {
	handler := Handler(Options{
		State: func(context.Context) State {
			return State{Node: "p0", Load: Load{Running: 2, Pages: Pages{Total: 9}},
				Requests: []Request{{ID: "a", State: "waiting"}}}
		},
		Reload:    func(context.Context) (Reloaded, error) { return Reloaded{Generation: 7}, nil },
		Dashboard: []byte(`{"title":"t"}`),
	})
	ask := func(method, path, origin string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader("{}"))
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	w := ask("GET", "/state", "")
	var s State
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Node != "p0" || s.Running != 2 ||
		s.Pages.Total != 9 || len(s.Requests) != 1 ||
		!strings.Contains(w.Body.String(), `"running":2`) {
		t.Errorf("%v %s", err, w.Body)
	}
	if w = ask("GET", "/dashboard", ""); w.Body.String() != `{"title":"t"}` {
		t.Errorf("%s", w.Body)
	}
	for _, call := range []string{"GET /state", "POST /reload", "GET /policies",
		"POST /policies/load", "POST /policies/rollback"} {
		method, path, _ := strings.Cut(call, " ")
		if w = ask(method, path, "https://a.example"); w.Code != http.StatusForbidden {
			t.Errorf("%s from a web page: %d", call, w.Code)
		}
	}
	if w = ask("GET", "/policies", ""); w.Code != http.StatusBadRequest ||
		!strings.Contains(w.Body.String(), "only forwards") {
		t.Errorf("policies of a router: %d %s", w.Code, w.Body)
	}
	if w = ask("POST", "/reload", ""); !strings.Contains(w.Body.String(), `"generation":7`) {
		t.Errorf("%s", w.Body)
	}
}
