package plugintest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestShipped runs the suite over every policy in the binary, and over the one in text.
func TestShipped(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "builtin", "*.wasm"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	files = append(files, filepath.Join("..", "..", "abi", "guest", "wat", "fcfs.wasm"))
	for _, file := range files {
		wasm, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) { Run(t, wasm, Options{Seed: 7}) })
	}
}

// TestTableEnds: the made-up traffic alone never leaves its bounds.
func TestTableEnds(t *testing.T) {
	table := NewTable(3, 20)
	for range 1000 {
		v := table.Next(nil)
		if int(v.Header.NSlots) != len(v.Records) || len(v.Records) > 20 {
			t.Fatalf("%d slots, %d records", v.Header.NSlots, len(v.Records))
		}
		for i, slot := range v.Changed {
			if slot >= v.Header.NSlots || i > 0 && slot <= v.Changed[i-1] {
				t.Fatalf("changed %v", v.Changed)
			}
		}
	}
}
