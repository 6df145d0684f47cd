package tokenizer

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// english is about a megabyte of English prose: the file named by ENGINE_BENCH_TEXT, or the
// texts of the shared reference folder, repeated.
func english(b *testing.B) string {
	b.Helper()
	var text strings.Builder
	if name := os.Getenv("ENGINE_BENCH_TEXT"); name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		return string(data)
	}
	files, err := filepath.Glob(filepath.Join(sharedDir(b), "..", "reference", "*.md"))
	if err != nil || len(files) == 0 {
		b.Skip("no English text to encode")
	}
	for text.Len() < 1<<20 {
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				b.Fatal(err)
			}
			text.Write(data)
		}
	}
	return text.String()
}

// BenchmarkEncode reports MB/s of English on one core.
func BenchmarkEncode(b *testing.B) {
	text := english(b)
	for _, name := range families {
		b.Run(name, func(b *testing.B) {
			tok := family(b, name)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, EncodeOptions{})
			}
		})
	}
}

// BenchmarkDecode reports MB/s of the text that comes out.
func BenchmarkDecode(b *testing.B) {
	text := english(b)
	for _, name := range families {
		b.Run(name, func(b *testing.B) {
			tok := family(b, name)
			ids := tok.Encode(text, EncodeOptions{})
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Decode(ids, false)
			}
		})
	}
}

// BenchmarkLoad reports the time to load each tokenizer from memory.
func BenchmarkLoad(b *testing.B) {
	for _, name := range families {
		b.Run(name, func(b *testing.B) {
			files := familyFiles(b, name)
			size, err := fs.Stat(files, mainFile)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size.Size())
			for b.Loop() {
				if _, err := Load(files); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
