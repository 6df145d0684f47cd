package api

import (
	"context"
	"embed"
	"path"
)

// Where the page is.
const (
	pagePath  = "/ui"
	pageState = "/ui/state"
)

// Page is what the page at /ui shows beside a chat.
type Page struct {
	// State describes the instance now, as JSON; of requests it shows those whose tenant sees says
	// may be shown.
	State func(ctx context.Context, sees func(tenant string) bool) any
}

// pageFiles are the page itself: it fetches nothing from elsewhere.
//
//go:embed page
var pageFiles embed.FS

// pageTypes are the types of the files, by their endings.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8",
}

// pagePolicy lets the page load what it came with, talk to its own server, and be in no frame.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageRoutes are the routes of the page, none without one.
func (s *Server) pageRoutes() []route {
	if s.options.Page == nil {
		return nil
	}
	list := []route{{"GET", pagePath, pageFile("index.html")}, {"GET", pageState, s.pageState}}
	for _, name := range []string{"page.css", "page.js"} {
		list = append(list, route{"GET", pagePath + "/" + name, pageFile(name)})
	}
	return list
}

// pageFile answers with one of the page's files.
func pageFile(name string) func(*exchange) {
	data, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic("api: the page lacks " + name)
	}
	return func(x *exchange) {
		h := x.w.Header()
		h.Set("Content-Type", pageTypes[path.Ext(name)])
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		_, _ = x.w.Write(data) // A client that is gone notices nothing.
	}
}

// pageState answers with what the page shows.
func (s *Server) pageState(x *exchange) {
	x.w.Header().Set("Cache-Control", "no-store")
	s.reply(x, s.options.Page.State(x.r.Context(), x.visit.Sees))
}
