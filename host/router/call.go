package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// Bounds of what an instance may answer.
const (
	maxAnswer = 1 << 20
	maxFile   = 256 << 20
	// mostRetryAfter bounds, in seconds, when a client is told to try again.
	mostRetryAfter = 600
)

// post makes one micro-serving call and reads its answer into to.
func (r *Router) post(ctx context.Context, url string, body, to any, h http.Header) error {
	response, err := r.open(ctx, url, body, h)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("the answer of %s is not understood: %w", url, err)
	}
	return nil
}

// open makes a call and leaves the body of its answer to the caller. An error status is an
// *openai.Error.
func (r *Router) open(ctx context.Context, url string, body any, h http.Header) (*http.Response,
	error,
) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the call to %s: %w", url, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", url, err)
	}
	maps.Copy(request.Header, h)
	request.Header.Set("Content-Type", "application/json")
	return r.do(request)
}

// fetch gets at most so many bytes.
func (r *Router) fetch(ctx context.Context, url string, most int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	response, err := r.do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", url, err)
	case int64(len(data)) > most:
		return nil, fmt.Errorf("get %s: the answer is longer than %d bytes", url, most)
	}
	return data, nil
}

func (r *Router) fetchJSON(ctx context.Context, url string, to any) error {
	data, err := r.fetch(ctx, url, maxAnswer)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("the answer of %s is not understood: %w", url, err)
	}
	return nil
}

func (r *Router) do(request *http.Request) (*http.Response, error) {
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err // It names method and URL.
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", request.URL, err)
	}
	fault := openai.DecodeError(response.StatusCode, data)
	unknown := response.StatusCode == http.StatusNotFound ||
		response.StatusCode == http.StatusMethodNotAllowed
	if unknown && fault.Code == openai.CodeInternal { // Whoever it is words errors otherwise.
		fault.Code = openai.CodeUnknownURL
	}
	if after, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		fault.RetryAfter = time.Duration(min(max(after, 0), mostRetryAfter)) * time.Second
	}
	return nil, fault
}
