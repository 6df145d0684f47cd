package router

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"slices"
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
	var out []aside
	r.settle(func(p *placement.Pool) {
		if down = p.Failed(role, name); down {
			delete(r.speaks, instanceKey(role, name))
			out = r.align()
		}
	})
	r.tellAside(out)
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
	return r.conclude(role, name, who, err)
}

// conclude takes what a check has found, and returns why the instance is not used.
func (r *Router) conclude(role placement.Role, name string, who openai.Instance, err error) error {
	var odd, changed bool
	var out []aside
	r.settle(func(p *placement.Pool) {
		key := instanceKey(role, name)
		if err == nil {
			err = r.fits(key, who) // Others may have answered meanwhile.
		}
		_, apart := errors.AsType[*misfit](err)
		if _, was := errors.AsType[*misfit](r.refusals[key]); err != nil && !apart &&
			(was || gone(err)) {
			delete(r.speaks, key)
		}
		odd = r.note(key, err)
		switch {
		case gone(err):
			changed = p.Gone(role, name)
		case err == nil:
			changed = p.Healthy(role, name, placement.Report{Waiting: who.Waiting,
				Running: who.Running})
		}
		out = r.align()
	})
	if err == nil {
		r.works(role, name, openai.FromMilliseconds(who.Stalled))
	}
	switch {
	case odd:
		r.options.Log.Warn("instance is not used", "instance", name, "role", role.String(), "error",
			err)
	case changed && err != nil:
		r.options.Log.Warn("instance is down", "instance", name, "role", role.String(), "error",
			err)
	case changed:
		r.options.Log.Info("instance is up", "instance", name, "role", role.String())
	}
	r.tellAside(out)
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

// meet remembers who an instance is, learns the model from the first of the kind that is used, and
// refuses one that could not hand requests over to those.
func (r *Router) meet(ctx context.Context, role placement.Role, name string,
	who openai.Instance) error {
	key := instanceKey(role, name)
	r.mu.Lock()
	leads := r.fits(key, who) == nil
	model := r.model
	r.mu.Unlock()
	if leads && (model == nil || model.Instance.Compat != who.Compat) {
		var err error
		if model, err = r.learn(ctx, r.url(role, name), who); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.speaks, key) // Others shall not wait for a model that it does not tell.
			return err
		}
		r.options.Log.Info("model learned", "instance", name, "model", who.Models[0],
			"context", who.Context)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stays := func(i placement.Instance) bool { return i.Role == role && i.Name == name }
	if !slices.ContainsFunc(r.pool.Snapshot(), stays) {
		return nil // It was taken out meanwhile.
	}
	r.known[key], r.speaks[key] = who, true
	if err := r.fits(key, who); err != nil {
		return err
	}
	if r.model != nil && r.model.Instance.Compat == who.Compat {
		return nil
	}
	if !leads {
		delete(r.speaks, key)
		return errors.New("the instances in use changed meanwhile: it is asked again")
	}
	r.model = model
	return nil
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
