package main

import (
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// loadDrafts loads the models that run beside the main one, which is there.
func (l *loaded) loadDrafts(cfg *config.Config, show *loading) error {
	for i, path := range cfg.Model.Additional {
		at, err := findModel(path, filepath.Dir(cfg.File()))
		if err != nil {
			return fmt.Errorf("model.additional, number %d: %w", i+1, err)
		}
		options := draftOptions(cfg)
		options.Admit, options.Progress = show.admit, show.progress
		var draft *model.Model
		if at.path == "" {
			draft, err = model.LoadFS(l.device, embedded.FS(), options)
		} else {
			draft, err = model.Load(l.device, at.path, options)
		}
		show.end()
		if err != nil {
			return fmt.Errorf("load model.additional, number %d: %w", i+1, err)
		}
		l.drafts = append(l.drafts, draft)
		if err := fitsBeside(draft.Config(), l.model.Config(), l.api.Context); err != nil {
			return fmt.Errorf("model.additional, number %d (%s): %w", i+1, at.name, err)
		}
		if draft.Config().Hidden != l.api.Hidden {
			l.api.Hidden = 0 // No vector means the same to both.
		}
	}
	return nil
}

// share returns second models over the same weights, for a second engine in this process.
func (l *loaded) share() (main *model.Model, drafts []*model.Model, err error) {
	if main, err = l.model.Share(); err != nil {
		return nil, nil, err
	}
	for _, draft := range l.drafts {
		shared, err := draft.Share()
		if err != nil {
			return nil, nil, err
		}
		drafts = append(drafts, shared)
	}
	return main, drafts, nil
}

// about are the configurations of the models, the main one first.
func (l *loaded) about() []model.Config {
	all := []model.Config{l.model.Config()}
	for _, draft := range l.drafts {
		all = append(all, draft.Config())
	}
	return all
}

// draftOptions is how a model beside the main one is loaded: sinks are the main model's.
func draftOptions(cfg *config.Config) model.Options {
	o := modelOptions(cfg)
	o.Sinks = 0
	return o
}

// fitsBeside checks that a model can run over the tokens of the main one, for requests of at most
// context tokens.
func fitsBeside(draft, main model.Config, context int) error {
	switch {
	case draft.Vocabulary != main.Vocabulary:
		return fmt.Errorf("its vocabulary has %d tokens, that of model.path %d: the same tokens "+
			"must mean the same to both", draft.Vocabulary, main.Vocabulary)
	case draft.Context < context:
		return fmt.Errorf("it has %d positions, and requests may have %d: lower "+
			"model.max_model_len to %d", draft.Context, context, draft.Context)
	}
	return nil
}

// checkDrafts reads the folders of the models beside the main one, of their weights the headers.
func checkDrafts(cfg *config.Config, main model.Config,
) (drafts []model.Config, problem *config.Problem) {
	for i, path := range cfg.Model.Additional {
		about, name, err := draftAt(path, filepath.Dir(cfg.File()))
		if err == nil {
			err = fitsBeside(about, main, cfg.Model.MaxModelLen.Or(main.Context))
		}
		if err == nil {
			err = about.KeepsKV(modelOptions(cfg).KV)
		}
		if err != nil {
			wrong := cfg.At("model.additional")
			wrong.Code, wrong.Message = "E417", "model.additional names a model that cannot run "+
				"beside model.path"
			wrong.Label = fmt.Sprintf("number %d, %s: %v", i+1, name, err)
			return nil, &wrong
		}
		drafts = append(drafts, about)
	}
	return drafts, nil
}

// draftAt reads what a path of model.additional names.
func draftAt(path, folder string) (about model.Config, name string, err error) {
	at, err := findModel(path, folder)
	if err != nil {
		return about, modelName(path), err
	}
	files, err := at.files()
	if err == nil {
		about, err = model.ReadConfig(files)
	}
	if err == nil {
		_, err = survey(at, model.Options{})
	}
	return about, at.name, err
}

// tokenBytes are the keys and values of one token in all models.
func tokenBytes(cfg *config.Config, models ...model.Config) (total int64) {
	for _, about := range models {
		total += about.Need(modelOptions(cfg)).Token
	}
	return total
}

// about are the configurations of the models, the main one first.
func (s *setup) about() []model.Config {
	all := []model.Config{s.model.Config()}
	for _, draft := range s.drafts {
		all = append(all, draft.Config())
	}
	return all
}

// memories say what pages the models beside the main one have: as many as it has, and windows of
// their own.
func memories(o scheduler.Options, drafts []model.Config) (all []scheduler.Memory) {
	for _, about := range drafts {
		m := scheduler.Memory{Pages: o.Pages, PrefixPages: o.PrefixPages}
		if about.UniformWindow {
			m.Window, m.Sinks = about.Window, about.Sinks
		}
		all = append(all, m)
	}
	return all
}

// allocate makes the page pools of all models.
func (s *setup) allocate(r *running, pages int) error {
	for _, m := range append([]*model.Model{s.model}, s.drafts...) {
		store, err := m.NewKV(pages, s.cfg.KVCache.PageSize)
		if err != nil {
			return fmt.Errorf("allocate %d KV pages: %w", pages, err)
		}
		r.stores = append(r.stores, store)
		r.compats = append(r.compats, s.compat(m))
	}
	return nil
}

// runners are the models in the engine's order.
func (s *setup) runners() []engine.Runner {
	all := []engine.Runner{s.model}
	for _, draft := range s.drafts {
		all = append(all, draft)
	}
	return all
}

// transferred are the models as the transfer sees them.
func (r *running) transferred() (all []transfer.Model) {
	for i, store := range r.stores {
		all = append(all, transfer.Model{Compat: r.compats[i], Pages: store,
			SlotBytes: store.TokenBytes()})
	}
	return all
}

// pages counts the pages of all models.
func (r *running) pages() (total int) {
	for _, store := range r.stores {
		total += store.Pages()
	}
	return total
}

// compat is what another instance must have in common with a model of this one.
func (s *setup) compat(m *model.Model) transfer.Compat {
	about, digest := m.Config(), m.Digest()
	return transfer.Compat{
		Model: about.Architecture, Weights: hex.EncodeToString(digest[:]),
		DType: s.cfg.KVCache.DType, PageSize: s.cfg.KVCache.PageSize, Layers: about.Layers,
		KVHeads: about.KVHeads, HeadDim: about.HeadDim, Rope: about.Rope, Window: about.Window,
		Sinks: about.Sinks, Numerics: m.Numerics(), Protocol: transfer.ProtocolVersion,
	}
}
