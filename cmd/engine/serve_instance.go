package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/access"
	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/metrics"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
	"github.com/kvrelay/engine/plugins"
)

// instance is one serving process, whatever its role.
type instance struct {
	file    string // -c; "" is the defaults
	cfg     *config.Config
	level   *slog.LevelVar
	log     *slog.Logger
	metrics *metrics.Metrics
	servers *servers
	ready   atomic.Bool
	loading *loading
	gate    *access.Gate
	meter   *meter
	secured *tls.Config // of the API; nil for plain HTTP
	router  *fronted    // nil unless this is one
	front   *api.Server // what answers requests
	drain   draining
	traces  traces
	who     admin.State // the part of it that never changes
	// What a reload leaves as it is, and other goroutines read.
	stall    time.Duration
	shutdown config.Shutdown

	model    *loaded   // nil on a router
	engine   *running  // nil on a router
	policies *policies // nil on a router
	reloads  reloads
}

// serveInstance runs until ctx ends.
func serveInstance(ctx context.Context, o serveOptions, s streams) error {
	cfg, notes, err := loadConfig(o.file)
	if err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprint(s.err, note.String())
	}
	i := &instance{file: o.file, cfg: cfg, level: new(slog.LevelVar),
		stall: cfg.Scheduler.Stall, shutdown: cfg.Shutdown}
	i.level.Set(logLevel(cfg))
	i.log = slog.New(newHandler(cfg, s.err, i.level))
	defer i.close()
	hangups, release := catchHangups()
	defer release()
	if err := i.open(ctx, s); ctx.Err() != nil && errors.Is(err, context.Canceled) {
		i.log.Info("stopping", "while", "opening")
		return nil // Nobody was served yet: there is nothing to wait for.
	} else if err != nil {
		return err
	}
	signalled := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	i.servers.failed = func(err error) { cancel(err) }
	go i.reloadAt(ctx, hangups)
	if o.untilEOF {
		go func() { cancel(untilEOF(s.in)) }()
	}
	go i.watchProgress(ctx)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	if signalled.Err() != nil {
		i.leave()
	}
	i.log.Info("stopping")
	return nil
}

// reloadAt reloads at each SIGHUP.
func (i *instance) reloadAt(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			i.logReload(i.reload(ctx))
		case <-ctx.Done():
			return
		}
	}
}

// open builds what the role needs, opens the listeners and says so.
func (i *instance) open(ctx context.Context, s streams) error {
	i.metrics = metrics.New(metrics.Options{
		Model: metricsModel(i.cfg), Role: string(i.cfg.Node.Role), Node: i.cfg.NodeName(),
		Version: release, Commit: buildInfo().Commit, Go: buildInfo().Go,
		ABI: fmt.Sprintf("%d.%d", abi.Major, abi.Minor),
	})
	i.servers = &servers{log: i.log}
	var err error
	if i.secured, err = i.certificate(); err != nil { // Before the model, which may take long.
		return err
	}
	if err = i.openTraces(); err != nil {
		return fmt.Errorf("telemetry.otlp: %w", err)
	}
	i.loading = newLoading(ctx, s.err, i.log)
	i.who = admin.State{Node: i.cfg.NodeName(), Role: string(i.cfg.Node.Role), Version: release}
	i.gate, i.meter = access.New(accessRules(i.cfg), time.Now), newMeter(time.Now)
	open := i.openEngine
	if i.cfg.Node.Role == config.RoleRouter {
		open = i.openRouter
	}
	if err := open(ctx); err != nil {
		return err
	}
	if err := i.openAdmin(); err != nil {
		return err
	}
	i.ready.Store(true)
	i.metrics.SetReady(i.router == nil || i.router.Ready() == nil)
	return i.announce(s)
}

func metricsModel(cfg *config.Config) string {
	if len(cfg.Model.ServedNames) > 0 {
		return cfg.Model.ServedNames[0]
	}
	if at, err := modelPlace(cfg); err == nil {
		return at.name
	}
	return modelName(cfg.Model.Path)
}

// openEngine loads the model, starts the engine and serves it.
func (i *instance) openEngine(ctx context.Context) error {
	var err error
	if i.model, err = loadModel(i.cfg, i.loading); err != nil {
		return err
	}
	if idle := idleActivations(i.cfg, i.model.model.Numerics()); idle != "" {
		i.log.Warn(idle)
	}
	observer := &observer{metrics: i.metrics, log: i.log}
	var apart plugins.Options
	if err := policyFolders(i.cfg, &apart, i.log); err != nil {
		return err
	}
	if i.policies, err = openPolicies(ctx, i.cfg, apart, observer); err != nil {
		return err
	}
	listener, address, err := i.servers.listenInternal(i.cfg.Listen.Internal)
	if err != nil {
		return err
	}
	watch := &watch{metrics: i.metrics, meter: i.meter, policy: observer.name}
	s := setup{cfg: i.cfg, role: i.cfg.Node.Role, device: i.model.device, model: i.model.model,
		drafts: i.model.drafts, hidden: i.model.api.Hidden,
		context:  i.model.api.Context,
		policies: i.policies, watch: watch, address: address, log: i.log, traces: &i.traces}
	if i.engine, err = s.start(ctx); err != nil {
		return err
	}
	i.metrics.SetCapacity(i.engine.pages(), i.cfg.KVCache.PageSize, i.cfg.KVCache.DType)
	i.front = i.server(api.Options{
		Model:  func() (*api.Model, *openai.Error) { return i.model.api, nil },
		Source: i.engine.engine, Handoff: i.engine.engine, Identity: i.identity,
		Policy: observer.name,
	})
	if listener != nil {
		mux := transfer.NewMux(listener, i.engine.receiver)
		i.servers.serve(mux.HTTP(), i.front, i.front.Internal())
	}
	return i.openAPI(i.front)
}

// server completes what every role's server has.
func (i *instance) server(o api.Options) *api.Server {
	c := i.cfg.API
	o.Seed, o.Log = randomSeed, i.log
	o.MaxBody, o.MaxStop, o.MaxConnections = int64(c.MaxBody), c.MaxStop, i.maxConnections()
	o.MaxN, o.MaxHeader = c.MaxN, int(c.MaxHeader)
	o.RequestTimeout, o.WriteTimeout = c.RequestTimeout, c.WriteTimeout
	o.KeepAlive, o.Watch = c.SSEKeepalive, httpWatch{metrics: i.metrics, meter: i.meter,
		router: i.cfg.Node.Role == config.RoleRouter}
	o.Tracer, o.Ring = i.traces.tracer, i.traces.ring
	o.Gate, o.Page, o.LogPrompts = i.gate, i.page(), i.cfg.Telemetry.LogPrompts
	i.drained(&o)
	o.Stalled, o.Stall = i.stalled, i.cfg.Scheduler.Stall
	ready := o.Ready
	o.Ready = func() *openai.Error {
		if !i.ready.Load() {
			return openai.Errorf(openai.CodeModelLoading, "",
				"the instance is starting or stopping")
		}
		if i.policies != nil && !i.policies.Admits() {
			return openai.Errorf(openai.CodePolicySetAside, "", "the policy is set aside after "+
				"repeated faults, and policy.on_fault is stop_admitting")
		}
		if i.engine != nil {
			if lost := i.engine.engine.Lost(); lost != nil {
				return openai.Errorf(openai.CodeDeviceLost, "", "%v", lost)
			}
		}
		if ready != nil {
			return ready()
		}
		return nil
	}
	o.Metrics = i.metricsHandler(o.Ready)
	return api.New(o)
}

// maxConnections is what the configuration says, or half of the files that the process may open:
// beyond them nobody could be answered, and the rest is for models, peers and refusals.
func (i *instance) maxConnections() int {
	most, files := i.cfg.API.MaxConnections, openFiles()
	if most <= files/2 {
		return most
	}
	i.log.Warn("api.max_connections is lowered to half of the files that this process may open; "+
		"raise the limit (ulimit -n) for more", "configured", most, "files", files,
		"connections", files/2)
	return files / 2
}

// identity is what the instance tells routers.
func (i *instance) identity() openai.Instance {
	const patience = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	who := openai.Instance{
		Name: i.cfg.NodeName(), Role: string(i.cfg.Node.Role), Models: i.model.api.Names,
		Context: i.model.api.Context, Hidden: i.model.api.Hidden, Defaults: i.model.api.Defaults,
		Compat: transfer.CompatDigest(i.engine.compats), Parts: parts(i.engine.compats),
		Fingerprint: i.model.api.Fingerprint,
		Stalled:     openai.Milliseconds(i.engine.engine.Stalled()),
		Recomputes:  i.cfg.Transfer.OnFailure == "recompute",
	}
	if stats, _, err := i.engine.engine.Stats(ctx); err == nil {
		in := stats.States
		who.Waiting = in[scheduler.Waiting] + in[scheduler.Prepared] + in[scheduler.Receiving]
		who.Running = in[scheduler.Prefilling] + in[scheduler.Decoding]
	}
	return who
}

// openAdmin serves the operator's listener.
func (i *instance) openAdmin() error {
	address, err := i.cfg.AdminAddress()
	if err != nil {
		i.noAdmin(err) // Only an address that nobody chose can be unknown.
		return nil
	}
	if address == "" {
		return nil
	}
	o := admin.Options{Reload: i.reload, State: i.state, Drain: i.drainCall,
		Trace:     i.traceDocument,
		Dashboard: metrics.Dashboard(), Limits: policyLimits(i.cfg)}
	if i.router != nil {
		o.Fleet = fleet{i.router, i.metrics}
	}
	if i.engine != nil {
		o.Explain = i.explain
	}
	if i.policies != nil {
		o.Policies = i.policies.Host
		o.Named = i.namedPolicy
	}
	err = i.servers.openAdmin(address, admin.Handler(o))
	if err != nil && !i.cfg.Listen.Admin.Set && !errors.Is(err, errTaken) {
		i.noAdmin(err)
		return nil
	}
	return err
}

// noAdmin goes on without the operator's socket where the file names none and there is no place for
// it, as for a user without a home: requests need none.
func (i *instance) noAdmin(err error) {
	i.log.Warn("no admin socket, so reload, policy and top cannot reach this instance: "+
		"set listen.admin to unix:PATH or a loopback host:port", "error", err)
}

// close ends what runs, stops listening and releases what is held, in this order.
func (i *instance) close() {
	i.ready.Store(false)
	// What is under way ends first, so that its clients can still be told.
	if i.engine != nil {
		i.engine.close()
	}
	if i.router != nil {
		i.router.Close()
		i.router.stop()
	}
	if i.servers != nil {
		i.servers.close()
	}
	i.traces.tracer.Close()
	if i.policies != nil {
		_ = i.policies.Close() // Nothing decides any more.
	}
	if i.model != nil {
		i.model.close(context.Background(), i.log)
	}
}

// untilEOF waits for the end of in: whoever started this process has gone.
func untilEOF(in any) error {
	var b [1]byte
	for {
		if _, err := in.(*os.File).Read(b[:]); err != nil {
			return context.Canceled
		}
	}
}
