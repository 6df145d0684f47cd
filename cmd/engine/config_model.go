package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/tokenizer"
)

// checkModel reads all of the model's folder, of its weights the headers.
func checkModel(cfg *config.Config) (line string, problems []config.Problem) {
	wrong := cfg.At("model.path")
	refuse := func(message string, err error) (string, []config.Problem) {
		wrong.Code, wrong.Message, wrong.Label = "E411", message, err.Error()
		return "", []config.Problem{wrong}
	}
	at, err := modelPlace(cfg)
	if err != nil {
		return refuse("model.path names no model", err)
	}
	files, err := at.files()
	if err != nil {
		return refuse("this model cannot be served", err)
	}
	if _, err := fs.Stat(files, "config.json"); err != nil {
		return refuse("model.path is not a model's folder", fmt.Errorf("no config.json in it"))
	}
	about, err := model.ReadConfig(files)
	if err != nil {
		return refuse("this model cannot be served", err)
	}
	tok, err := tokenizer.Load(files)
	if err != nil {
		return refuse("this model's tokenizer cannot be used", err)
	}
	types, err := survey(at, modelOptions(cfg))
	if err != nil {
		return refuse("this model's weights cannot be loaded", err)
	}
	if most := cfg.Model.MaxModelLen; most.Set && most.Value > about.Context {
		wrong = cfg.At("model.max_model_len")
		wrong.Code, wrong.Message = "E412", "model.max_model_len is above the model's own limit"
		wrong.Label = fmt.Sprintf("the model has %d positions", about.Context)
		return "", []config.Problem{wrong}
	}
	if n := cfg.Model.AttentionSinks; n > 0 && about.Window == 0 {
		wrong = cfg.At("model.attention_sinks")
		wrong.Code, wrong.Message = "E413", "model.attention_sinks is of no use to this model"
		wrong.Label = "it has no sliding window: write 0"
		return "", []config.Problem{wrong}
	}
	if err := about.KeepsKV(modelOptions(cfg).KV); err != nil {
		wrong = cfg.At("kv_cache.dtype")
		wrong.Code, wrong.Message, wrong.Label = "E418", "kv_cache.dtype does not fit this model",
			err.Error()
		return "", []config.Problem{wrong}
	}
	drafts, problem := checkDrafts(cfg, about)
	models := append([]model.Config{about}, drafts...)
	if problem == nil {
		problem = checkServing(cfg, models, tok)
	}
	if problem != nil {
		return "", []config.Problem{*problem}
	}
	parts := []string{at.name, modelSize(at, files), memoryWords(cfg, models), "tokenizer ok"}
	if len(drafts) > 0 {
		parts = append(parts, plural(len(drafts), "draft")+" ok")
	}
	parts = append(parts, chatWords(tok))
	if idle := idleActivations(cfg, cpu.NumericsWith(deviceOptions(cfg), types)); idle != "" {
		parts = append(parts, idle)
	}
	return strings.Join(parts, ", "), nil
}

// chatWords says whether the model can chat.
func chatWords(tok *tokenizer.Tokenizer) string {
	switch _, err := tok.ChatTemplate(""); {
	case err == nil:
		return "chat template ok"
	case errors.Is(err, tokenizer.ErrNoTemplate):
		return "no chat template"
	default:
		return "chat refused: " + err.Error()
	}
}

// survey reads the headers of the weight files: that all tensors are there, as loading wants them.
func survey(at place, o model.Options) (types []gpu.DType, err error) {
	if at.path == "" {
		return model.SurveyFS(embedded.FS(), o)
	}
	return model.Survey(at.path, o)
}

// idleActivations says where backend.activations = "bf16" does nothing: the model has no weights
// that such activations meet. numerics is the class that it is computed in. "": it does something.
func idleActivations(cfg *config.Config, numerics string) string {
	if cfg.Backend.Kind != "cpu" || cfg.Backend.Activations != "bf16" ||
		numerics == cpu.NumericsBF16 || numerics == cpu.NumericsBF16Int8 {
		return ""
	}
	return "backend.activations = \"bf16\" does nothing: this model has no weights in bf16; " +
		"its numerics class is " + numerics
}

// checkServing checks what the file says about serving the models, the main one first: a template
// of the operator's own, and memory for at least one request beside the weights.
func checkServing(cfg *config.Config, models []model.Config, tok *tokenizer.Tokenizer,
) *config.Problem {
	if _, err := chatTemplate(cfg, tok); err != nil && cfg.Model.ChatTemplate.Set {
		wrong := cfg.At("model.chat_template")
		wrong.Code, wrong.Message = "E414", "this chat template cannot be used"
		wrong.Label = err.Error()
		return &wrong
	}
	if cfg.Backend.Kind == "cuda" {
		return nil // Its memory is known when it is opened.
	}
	free, known := freeMemory()
	for _, m := range models {
		if need := m.Need(modelOptions(cfg)); known {
			free = max(0, free-need.Weights-need.Scratch)
		}
	}
	_, problem := planPool(cfg, requests(cfg, models, cfg.Model.MaxModelLen.Or(models[0].Context)),
		tokenBytes(cfg, models...)*int64(cfg.KVCache.PageSize), free)
	return problem
}

// memoryWords says what the models will take, for people.
func memoryWords(cfg *config.Config, models []model.Config) string {
	context, bytes := cfg.Model.MaxModelLen.Or(models[0].Context), int64(0)
	for _, m := range models {
		need := m.Need(modelOptions(cfg))
		bytes += need.Weights + need.Scratch
	}
	tokens := min(context, fullRequest(requests(cfg, models, context))*cfg.KVCache.PageSize)
	return fmt.Sprintf("needs %s, and %s for a request of %d tokens", size(int(bytes)),
		size(tokens*int(tokenBytes(cfg, models...))), context)
}

// modelName is what a model is called when nobody named it: its folder, or its GGUF file.
func modelName(path string) string {
	if path == "" {
		return embedded.Name
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return strings.TrimSuffix(filepath.Base(path), ".gguf")
}

// modelSize adds up the files of a model.
func modelSize(at place, files fs.FS) string {
	if model.IsGGUF(at.path) {
		total, err := model.SizeGGUF(at.path)
		if err != nil {
			return "size unknown"
		}
		return size(int(total))
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return "size unknown"
	}
	total := 0
	for _, e := range entries {
		if info, err := fs.Stat(files, e.Name()); err == nil && info.Mode().IsRegular() {
			total += int(info.Size())
		}
	}
	return size(total)
}
