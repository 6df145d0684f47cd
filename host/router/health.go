package router

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
	"github.com/kvrelay/engine/host/tokenizer"
)

// Model is what the instances serve, as the first of them told it.
type Model struct {
	Instance  openai.Instance
	Met       time.Time
	Files     fs.FS
	Tokenizer *tokenizer.Tokenizer
}

// Run asks the instances for their health until ctx ends.
func (r *Router) Run(ctx context.Context) {
	ticker := time.NewTicker(r.options.HealthInterval)
	defer ticker.Stop()
	for {
		r.checkIdle(ctx)
		select {
		case <-ticker.C:
		case <-r.changed:
		case <-ctx.Done():
			return
		}
	}
}

// checkIdle asks every instance that is not being asked already, and waits for none: one that does
// not answer must not keep the router from hearing of the others.
func (r *Router) checkIdle(ctx context.Context) {
	for _, i := range r.Instances() {
		key := instanceKey(i.Role, i.Name)
		r.mu.Lock()
		busy := r.asking[key]
		r.asking[key] = true
		r.mu.Unlock()
		if busy {
			continue
		}
		go func() {
			r.check(ctx, i.Role, i.Name)
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.asking, key)
		}()
	}
}

// checkAll asks every instance at once and waits for the answers.
func (r *Router) checkAll(ctx context.Context) {
	var wait sync.WaitGroup
	for _, i := range r.Instances() {
		wait.Go(func() { r.check(ctx, i.Role, i.Name) })
	}
	wait.Wait()
}

// check is look for the regular round: one that does not answer has failed once more.
func (r *Router) check(ctx context.Context, role placement.Role, name string) {
	err := r.look(ctx, role, name)
	if err == nil || gone(err) || ctx.Err() != nil {
		return
	}
	var down bool
	r.settle(func(p *placement.Pool) { down = p.Failed(role, name) })
	if down {
		r.options.Log.Warn("instance is down", "instance", name, "role", role.String(), "error",
			err)
	}
}

// look asks one instance whether it is ready and who it is, and returns why it is not used. Whoever
// answers is up, and whoever has gone is down; silence is for the regular round to judge, because
// many requests may look at one moment.
func (r *Router) look(ctx context.Context, role placement.Role, name string) error {
	asked, patience := ctx, r.options.ConnectTimeout+time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	url := r.url(role, name)
	if url == "" {
		return errors.New("it has left")
	}
	var who openai.Instance
	err := r.fetchJSON(ctx, url+"/ready", &struct{}{})
	if err == nil {
		err = r.fetchJSON(ctx, url+openai.PathInstance, &who)
	}
	if errors.Is(err, context.DeadlineExceeded) && asked.Err() == nil {
		err = &silent{patience}
	}
	if err = stranger(err); err == nil {
		err = serves(role, who)
	}
	if err == nil {
		err = r.meet(ctx, role, name, who)
	}
	odd := r.note(role, name, err)
	if err == nil {
		r.works(role, name, openai.FromMilliseconds(who.Stalled))
	}
	var changed bool
	r.settle(func(p *placement.Pool) {
		switch {
		case gone(err):
			changed = p.Gone(role, name)
		case err == nil:
			changed = p.Healthy(role, name, placement.Report{Waiting: who.Waiting,
				Running: who.Running})
		}
	})
	switch {
	case changed && err != nil:
		r.options.Log.Warn("instance is down", "instance", name, "role", role.String(), "error",
			err)
	case odd:
		r.options.Log.Warn("instance is not used", "instance", name, "role", role.String(), "error",
			err)
	case changed:
		r.options.Log.Info("instance is up", "instance", name, "role", role.String())
	}
	return err
}

// gone reports whether a check says that nobody is there, that an instance is leaving or has lost
// its device, or that it is not one to place on: not only that it did not answer in time.
func gone(err error) bool {
	if unusable(err) {
		return true
	}
	if fault, ok := errors.AsType[*openai.Error](err); ok {
		return fault.Code == openai.CodeDraining || fault.Code == openai.CodeDeviceLost
	}
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial" && !dial.Timeout()
}

// meet remembers who an instance is, learns the model from the first, and refuses one that could
// not hand requests over to those met before.
func (r *Router) meet(ctx context.Context, role placement.Role, name string,
	who openai.Instance) error {
	key := instanceKey(role, name)
	r.mu.Lock()
	before, met := r.known[key]
	had := r.model
	r.mu.Unlock()
	model := had
	if met && before.Compat == who.Compat && model != nil {
		return nil
	}
	if model != nil && model.Instance.Compat != who.Compat {
		if r.othersOf(key, model.Instance.Compat) {
			return &misfit{model.Instance, r.differences(who, model.Instance)}
		}
		model = nil // The last of its kind is gone: the instances serve another model now.
	}
	if model == nil {
		var err error
		if model, err = r.learn(ctx, r.url(role, name), who); err != nil {
			return err
		}
		r.options.Log.Info("model learned", "instance", name, "model", who.Models[0],
			"context", who.Context)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.model; first != had && first.Instance.Compat != who.Compat {
		return errors.New("another instance was met meanwhile: " + first.Instance.Name)
	}
	stays := func(i placement.Instance) bool { return i.Role == role && i.Name == name }
	if slices.ContainsFunc(r.pool.Snapshot(), stays) { // It may have been taken out meanwhile.
		r.known[key], r.model = who, model
	}
	return nil
}

// othersOf reports whether an instance other than key was met with that digest.
func (r *Router) othersOf(key, compat string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, who := range r.known {
		if k != key && who.Compat == compat {
			return true
		}
	}
	return false
}

// differences names what two instances do not have in common, and what mends it.
func (r *Router) differences(a, b openai.Instance) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(a.Parts)) {
		if here, there := a.Parts[key], b.Parts[key]; here != there {
			list = append(list, key+" is "+here+" here and "+there+" there"+
				r.options.Mend(key, here, there))
		}
	}
	if len(list) == 0 {
		return "their compatibility digests differ"
	}
	return strings.Join(list, "; ")
}

// learn fetches the tokenizer's files.
func (r *Router) learn(ctx context.Context, url string, who openai.Instance) (*Model, error) {
	if len(who.Models) == 0 {
		return nil, errors.New("it serves no model")
	}
	files := fstest.MapFS{}
	for i, name := range openai.TokenizerFiles() {
		data, err := r.fetch(ctx, url+openai.PathFiles+name, maxFile)
		if fault, ok := errors.AsType[*openai.Error](err); ok && i > 0 &&
			fault.Code == openai.CodeUnknownURL {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	tokens, err := tokenizer.Load(files)
	if err != nil {
		return nil, err
	}
	return &Model{Instance: who, Met: time.Now(), Files: files, Tokenizer: tokens}, nil
}
