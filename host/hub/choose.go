package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Names of weight files.
const (
	singleWeights = "model.safetensors"
	indexName     = "model.safetensors.index.json"
)

// required are the files that every model needs beside its weights.
func required() []string { return []string{"config.json", "tokenizer.json"} }

// optional are those that are used if the model has them.
func optional() []string {
	return []string{"generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
		"chat_template.jinja"}
}

// listing is what the hub says of one commit.
type listing struct {
	commit string
	files  map[string]File
}

// small chooses all that a model needs beside its shards, which only the index names. A model that
// an engine could not load is refused before anything is fetched.
func (l *listing) small(ref Ref) ([]File, error) {
	var chosen []File
	weights := singleWeights
	if _, single := l.files[singleWeights]; !single {
		weights = indexName
	}
	if _, ok := l.files[weights]; !ok {
		return nil, fmt.Errorf("%s has no %s: %s", ref, singleWeights, l.instead(ref))
	}
	for _, name := range required() {
		if _, ok := l.files[name]; !ok {
			return nil, fmt.Errorf("%s has no %s, without which it cannot be used", ref, name)
		}
	}
	for _, name := range slices.Concat(required(), optional(), []string{weights}) {
		if f, ok := l.files[name]; ok {
			chosen = append(chosen, f)
		}
	}
	return chosen, nil
}

// instead says which weights a model has that are not safetensors.
func (l *listing) instead(ref Ref) string {
	var others []string
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		if strings.HasSuffix(name, ".gguf") {
			return fmt.Sprintf("it has GGUF files; name one: engine pull %s %s", ref, name)
		}
		switch path.Ext(name) {
		case ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx":
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return "it has no weights at all"
	}
	return "it has " + strings.Join(others[:min(len(others), 3)], ", ")
}

// shards chooses the weight files that an index names.
func (l *listing) shards(index []byte) ([]File, error) {
	names, err := shardsOf(index)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexName, err)
	}
	var chosen []File
	for _, name := range names {
		f, ok := l.files[name]
		if !ok {
			return nil, fmt.Errorf("%s names %q, which the model does not have", indexName, name)
		}
		chosen = append(chosen, f)
	}
	return chosen, nil
}

// gguf chooses the one file that the user named.
func (l *listing) gguf(ref Ref, name string) ([]File, error) {
	if f, ok := l.files[name]; ok {
		return []File{f}, nil
	}
	var have []string
	for other := range l.files {
		if strings.HasSuffix(other, ".gguf") {
			have = append(have, other)
		}
	}
	if len(have) == 0 {
		return nil, fmt.Errorf("%s has no file %q, and no GGUF file at all", ref, name)
	}
	slices.Sort(have)
	return nil, fmt.Errorf("%s has no file %q; it has %s", ref, name, strings.Join(have, ", "))
}

// Bounds of an index. The largest models have some hundred shards.
const (
	maxIndexSize = 64 << 20
	maxShards    = 4096
)

func readIndex(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndexSize+1))
	if err == nil && len(data) > maxIndexSize {
		err = fmt.Errorf("it has more than %d bytes", maxIndexSize)
	}
	return data, err
}

// shardsOf lists the files that an index names, each once, in order.
func shardsOf(index []byte) ([]string, error) {
	var document struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(index, &document); err != nil {
		return nil, err
	}
	shards := slices.Sorted(maps.Values(document.Map))
	shards = slices.Compact(shards)
	if len(shards) == 0 {
		return nil, errors.New("it names no file")
	}
	if len(shards) > maxShards {
		return nil, fmt.Errorf("it names %d files, more than %d", len(shards), maxShards)
	}
	for _, name := range shards {
		if strings.Contains(name, "/") {
			return nil, fmt.Errorf("%.120q is not a file beside the index", name)
		}
		if err := checkFileName(name); err != nil {
			return nil, err
		}
	}
	return shards, nil
}
