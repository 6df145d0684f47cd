package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
	"github.com/kvrelay/engine/host/transfer/lanes"
)

// setup is what an engine is built from. One process may build two: see run.
type setup struct {
	cfg     *config.Config
	role    config.Role
	device  gpu.Device // the model's; nil: the processor
	model   *model.Model
	drafts  []*model.Model // beside it, over the same tokens
	context int
	// pages is the size of the pool; 0 means what the configuration and the memory say.
	pages      int
	policies   *policies
	watch      *watch  // nil hears nothing
	hidden     int     // width of the vectors that prompts may hold
	address    string  // of the internal listener, for senders
	traces     *traces // nil records nothing
	log        *slog.Logger
	prefixSize int64 // bytes of one page in all models, filled in
}

// running is an engine whose loop runs.
type running struct {
	engine   *engine.Engine
	receiver *transfer.Receiver
	sender   *transfer.Sender
	stores   []*model.KVStore  // of the main model, then of those beside it
	compats  []transfer.Compat // likewise
	context  int
	stop     context.CancelFunc
	done     sync.WaitGroup

	lender   *lanes.Lender   // nil: this instance lends no memory
	borrower *lanes.Borrower // nil: it borrows none
}

// start builds an engine and runs its loop.
func (s *setup) start(ctx context.Context) (*running, error) {
	about := s.model.Config()
	s.prefixSize = tokenBytes(s.cfg, s.about()...) * int64(s.cfg.KVCache.PageSize)
	pages, err := s.poolPages()
	if err != nil {
		return nil, err
	}
	r := &running{context: s.context}
	if err := s.allocate(r, pages); err != nil {
		return nil, err
	}
	sched, err := scheduler.New(s.schedulerOptions(pages), s.policies)
	if err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	o := engine.Options{
		Models: s.runners(), Scheduler: sched, Context: s.context,
		Vocabulary: about.Vocabulary, Hidden: s.hidden, EOS: about.EOS,
		MaxPending:         s.cfg.Scheduler.MaxQueue + s.cfg.Scheduler.MaxNumSeqs,
		QueueTimeout:       s.cfg.Scheduler.QueueTimeout,
		RecomputeOnFailure: s.cfg.Transfer.OnFailure == "recompute",
		Shares:             shares(s.cfg), Lease: s.cfg.Transfer.Lease,
		PolicyName: shownArrangement, Log: s.log,
		Lost: func(err error) bool { return errors.Is(err, gpu.ErrLost) },
	}
	if s.watch != nil {
		o.Watch = s.watch
	}
	s.traces.attach(&o)
	r.engine = engine.New(o)
	if err := s.connect(r); err != nil {
		return nil, err
	}
	if s.watch != nil && r.receiver != nil {
		s.watch.leases = r.receiver.Leases // Before the loop, which reads it.
		if r.lender != nil {
			s.watch.lanes = r.lender.Counts
		}
	}
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() { r.engine.Run(ctx) })
	return r, nil
}

// connect builds the ends of the transfer that the role needs.
func (s *setup) connect(r *running) error {
	t := s.cfg.Transfer
	models := r.transferred()
	if s.role != config.RolePrefill && s.address != "" {
		r.lender = s.lends()
		receiver, err := transfer.NewReceiver(transfer.ReceiverOptions{
			Models: models, Address: t.Advertise.Or(s.address), Random: rand.Reader,
			Timeout: t.Timeout, Lease: t.Lease, MaxInflight: t.MaxInflight, Events: r.engine.Heard,
			Nearby: s.listenNearby(), Lanes: r.lender,
		})
		if err != nil {
			return fmt.Errorf("transfer: %w", err)
		}
		r.receiver = receiver
	}
	if s.role != config.RoleDecode {
		r.borrower = s.borrows()
		sender, err := transfer.NewSender(transfer.SenderOptions{
			Models: models, Peers: t.Peers, Timeout: t.Timeout, MaxRate: int64(t.MaxRate),
			MaxInflight: t.MaxInflight, Events: r.engine.Heard,
			Transports: transports(t.Transports), Folder: nearbyFolder(),
			Lanes: r.borrower, Note: s.noteLane,
		})
		if err != nil {
			return fmt.Errorf("transfer: %w", err)
		}
		r.sender = sender
	}
	r.engine.Connect(r.receiver, r.sender)
	return nil
}

// close ends the loop and the connections.
func (r *running) close() {
	r.stop()
	r.done.Wait()
	if r.sender != nil {
		_ = r.sender.Close() // Its transfers were cancelled with their requests.
	}
	if r.receiver != nil {
		_ = r.receiver.Close()
	}
	if r.borrower != nil {
		r.borrower.Close()
	}
	if r.lender != nil {
		_ = r.lender.Close() // The process gives back what the device does not.
	}
}

// The parts that settings make equal.
const (
	partDType    = "kv dtype"
	partNumerics = "numerics"
)

// mendPart is transfer.Mend of what parts names otherwise. A draft computes as its model does.
func mendPart(part, here, there string) string {
	switch {
	case strings.HasSuffix(part, partDType):
		return transfer.Mend("dtype", here, there)
	case strings.HasSuffix(part, partNumerics):
		return transfer.Mend("numerics", here, there)
	}
	return ""
}

// parts names the values of the models' Compats, for routers and people.
func parts(models []transfer.Compat) map[string]string {
	all := map[string]string{}
	for i, c := range models {
		prefix := ""
		if i > 0 {
			prefix = fmt.Sprintf("draft %d ", i)
		}
		for name, value := range map[string]string{
			"model": c.Model, "weights": c.Weights[:min(12, len(c.Weights))], partDType: c.DType,
			"page_size": strconv.Itoa(c.PageSize), "layers": strconv.Itoa(c.Layers),
			"kv heads": strconv.Itoa(c.KVHeads), "head dim": strconv.Itoa(c.HeadDim),
			"rope": c.Rope, "window": strconv.Itoa(c.Window), "sinks": strconv.Itoa(c.Sinks),
			partNumerics: c.Numerics, "protocol": strconv.Itoa(c.Protocol),
		} {
			all[prefix+name] = value
		}
	}
	return all
}

// schedulerOptions are the configuration's numbers.
func (s *setup) schedulerOptions(pages int) scheduler.Options {
	prefix := -1
	switch {
	case !s.cfg.KVCache.PrefixCache:
		prefix = 0
	case s.cfg.KVCache.PrefixMemory.Set:
		prefix = int(int64(s.cfg.KVCache.PrefixMemory.Value) / s.prefixSize)
	}
	roles := map[config.Role]uint32{config.RolePrefill: abi.RolePrefill,
		config.RoleDecode: abi.RoleDecode, config.RoleAll: abi.RoleAll}
	o := requests(s.cfg, s.about(), s.context)
	o.Pages, o.PrefixPages, o.Role = pages, prefix, roles[s.role]
	o.Seed = uint64(s.cfg.Policy.Seed)
	o.KVBytesPerToken = int(s.prefixSize) / o.PageSize
	o.Drafts = memories(o, s.about()[1:])
	return o
}

// shares are what [tenants] and [class] give.
func shares(cfg *config.Config) engine.Shares {
	s := engine.Shares{Classes: map[uint8]engine.Class{
		generation.ClassInteractive: toClass(cfg.Class.Interactive),
		generation.ClassBatch:       toClass(cfg.Class.Batch),
	}}
	for _, t := range cfg.Tenants {
		s.Tenants = append(s.Tenants, engine.Tenant{Name: t.Name,
			WeightMilli: uint32(math.Round(t.Weight * 1000)), MaxSeqs: uint32(t.MaxSeqs)})
	}
	return s
}

func toClass(c config.Class) engine.Class {
	return engine.Class{Deadline: c.Deadline, TokenGap: c.ITL}
}

// requests are the options that say what requests of at most context tokens hold in the models, the
// main one first. Pages slide out only where every layer has the same window.
func requests(cfg *config.Config, models []model.Config, context int) scheduler.Options {
	about := models[0]
	o := scheduler.Options{
		Limits: limits(cfg), PageSize: cfg.KVCache.PageSize, MaxModelLen: context,
	}
	if about.UniformWindow {
		o.Window, o.Sinks = about.Window, about.Sinks
	}
	o.Drafts = memories(o, models[1:])
	return o
}

// limits are the numbers of [scheduler].
func limits(cfg *config.Config) scheduler.Limits {
	c := cfg.Scheduler
	return scheduler.Limits{
		MaxSeqs: c.MaxNumSeqs, TokenBudget: c.TokenBudget, ChunkMax: c.ChunkMax.Or(0),
		ChunkAlign: c.ChunkAlign, MaxAdmit: c.MaxAdmit.Or(0), MaxPreempt: c.MaxPreempt,
		ReservePages: c.ReservePages, MaxQueue: c.MaxQueue, HardAge: c.HardAge,
		MaxIdleSteps: c.MaxIdleSteps, MaxEmptySteps: c.MaxEmptySteps,
	}
}
