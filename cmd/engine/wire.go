package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// loaded is the model with its device and what the API needs of it.
type loaded struct {
	device gpu.Device
	model  *model.Model
	drafts []*model.Model // that run over the same tokens
	api    *api.Model
	need   model.Need
	took   time.Duration
}

// loadModel opens the device and loads the model that the configuration names.
func loadModel(cfg *config.Config, show *loading) (*loaded, error) {
	at, err := modelPlace(cfg)
	if err != nil {
		return nil, err
	}
	device, err := openDevice(cfg)
	if err != nil {
		return nil, err
	}
	l := &loaded{device: device}
	show.device = device
	options := modelOptions(cfg)
	options.Admit, options.Progress = show.admit, show.progress
	if at.path == "" {
		l.model, err = model.LoadFS(device, embedded.FS(), options)
	} else {
		l.model, err = model.Load(device, at.path, options)
	}
	show.end()
	if errors.Is(err, model.ErrKVType) {
		err = fmt.Errorf("kv_cache.dtype = %q: %w", cfg.KVCache.DType, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load the model: %w", err)
	}
	if l.api, err = apiModel(cfg, at, l.model.Config()); err != nil {
		return nil, err
	}
	if err := l.loadDrafts(cfg, show); err != nil {
		return nil, err
	}
	sum := l.model.Digest()
	l.api.Fingerprint = "fp_" + hex.EncodeToString(sum[:5])
	l.need, l.took = show.need, show.took()
	return l, nil
}

// deviceOptions is how the configuration wants the processor used.
func deviceOptions(cfg *config.Config) cpu.Options {
	o := cpu.Options{Threads: threads(cfg), ISA: cpu.ISA(cfg.Backend.ISA),
		FloatActivations: cfg.Backend.Activations == "f32",
		BF16Activations:  cfg.Backend.Activations == "bf16",
		TDP:              cfg.Backend.Numerics == "tdp"}
	if cfg.Backend.ISA == "auto" {
		o.ISA = cpu.Auto
	}
	return o
}

// modelOptions is how the configuration wants a model.
func modelOptions(cfg *config.Config) model.Options {
	o := model.Options{MaxRows: cfg.Scheduler.TokenBudget, Sinks: cfg.Model.AttentionSinks}
	for _, dtype := range []gpu.DType{gpu.F32, gpu.F16, gpu.BF16, gpu.Q8_0} {
		if dtype.String() == cfg.Model.DType { // else it is auto
			o.DType = &dtype
		}
		if dtype.String() == cfg.KVCache.DType {
			o.KV = dtype
		}
	}
	return o
}

// apiModel is what requests need to know of a model folder.
func apiModel(cfg *config.Config, at place, about model.Config) (*api.Model, error) {
	files, err := at.files()
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(files)
	if err != nil {
		return nil, fmt.Errorf("load the tokenizer: %w", err)
	}
	context := cfg.Model.MaxModelLen.Or(about.Context)
	if context > about.Context {
		return nil, fmt.Errorf("model.max_model_len is %d, but the model has %d positions",
			context, about.Context)
	}
	m := &api.Model{Names: cfg.Model.ServedNames, Context: context, Hidden: about.Hidden,
		Created:   time.Now(),
		Tokenizer: tok, Defaults: defaults(cfg, about), ToolParser: cfg.Model.ToolParser,
		Files: files}
	if len(m.Names) == 0 {
		m.Names = []string{at.name}
	}
	m.Template, m.TemplateError = chatTemplate(cfg, tok)
	if cfg.Model.ChatTemplate.Set && m.TemplateError != nil {
		return nil, m.TemplateError
	}
	return m, nil
}

// chatTemplate is the operator's template, else the model's own.
func chatTemplate(cfg *config.Config, tok *tokenizer.Tokenizer) (*tokenizer.ChatTemplate, error) {
	if !cfg.Model.ChatTemplate.Set {
		return tok.ChatTemplate("")
	}
	path := cfg.Model.ChatTemplate.Value
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read model.chat_template: %w", err)
	}
	return tok.ParseChatTemplate(path, string(text))
}

// defaults are the file's, else those of generation_config.json, else the API's own.
func defaults(cfg *config.Config, about model.Config) openai.Defaults {
	d, own := cfg.Model.Defaults, about.Sampling
	o := openai.Defaults{
		Temperature: d.Temperature.Or(or(own.Temperature, 1)),
		TopP:        d.TopP.Or(or(own.TopP, 1)),
		TopK:        d.TopK.Or(or(own.TopK, 0)),
		MinP:        d.MinP.Or(0),
		MaxTokens:   d.MaxTokens.Or(0),
	}
	if d.Seed.Set {
		seed := uint64(d.Seed.Value)
		o.Seed = &seed
	}
	return o
}

func or[T any](p *T, otherwise T) T {
	if p != nil {
		return *p
	}
	return otherwise
}

// randomSeed is the seed of a request that brings none.
func randomSeed() uint64 {
	var b [8]byte
	rand.Read(b[:]) // It never fails.
	return binary.LittleEndian.Uint64(b[:]) >> 1
}

// closeModel releases the model and its device.
func (l *loaded) close(ctx context.Context, log *slog.Logger) {
	for _, draft := range l.drafts {
		if err := draft.Close(); err != nil {
			log.ErrorContext(ctx, "close a draft", "error", err)
		}
	}
	if err := l.model.Close(); err != nil {
		log.ErrorContext(ctx, "close the model", "error", err)
	}
	if err := l.device.Close(); err != nil {
		log.ErrorContext(ctx, "close the device", "error", err)
	}
}
