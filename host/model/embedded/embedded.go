// Package embedded holds the default model: a small Llama trained for this project by train.py on
// the King James Bible. README.md is its card. The files are a Hugging Face folder, so the folder
// checkpoint can be given to anything that reads one.
package embedded

import (
	"embed"
	"io/fs"
)

// Name is what the model is called where a folder would have given the name.
const Name = "embedded"

//go:embed checkpoint
var files embed.FS

// FS returns the model's folder: config.json, generation_config.json, model.safetensors,
// tokenizer.json and tokenizer_config.json.
func FS() fs.FS {
	folder, err := fs.Sub(files, "checkpoint")
	if err != nil {
		panic("embedded: " + err.Error()) // Only an invalid path is an error.
	}
	return folder
}
