package hub

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseRef(t *testing.T) {
	for text, want := range map[string]Ref{
		"acme/tiny":               {"acme", "tiny", ""},
		"HuggingFaceTB/SmolLM2-1": {"HuggingFaceTB", "SmolLM2-1", ""},
		"a/b.c_d@v1.0":            {"a", "b.c_d", "v1.0"},
		"a/b@refs/pr/1":           {"a", "b", "refs/pr/1"},
		"_a/0@" + testCommit:      {"_a", "0", testCommit},
	} {
		if got, err := ParseRef(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "/", "a", "a/", "/b", "a/b/c", "./b", "../b", "a/..", "a/.b", "a/b.", "a/-b", "a--b/c",
		"a/b--c", "a/b..c", "a/b.git", "a b/c", "a/b c", `a\b/c`, "~/x", "a/ü", "a/b@", "a/b@..",
		"a/b@../x", "a/b@/x", "a/b@x/", "a/b@x//y", "a/b@x y", "a/b@.x", "a/b@x.lock", "a/b@x:y",
		"a/b@x\x00", "a/b@x\\y", "a/b@C:x", "a/b@x..y", "a/b@x\n", "/etc/passwd", "C:/x",
		"a/" + strings.Repeat("b", 96), "a/b@" + strings.Repeat("x", 256),
	} {
		if got, err := ParseRef(text); err == nil {
			t.Errorf("%q was taken for %+v", text, got)
		}
	}
}

// FuzzParseRef: whatever is accepted makes names that stay where they belong.
func FuzzParseRef(f *testing.F) {
	for _, text := range []string{"a/b", "a/b@c", "a/b@refs/pr/1", "../..@..", "a/b@..", `a\b/c`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRef(text)
		if err != nil {
			return
		}
		if r.String() != text {
			t.Fatalf("%q was read as %q", text, r)
		}
		if folder := r.folder(); filepath.Base(folder) != folder || !filepath.IsLocal(folder) {
			t.Fatalf("the folder of %q is %q", text, folder)
		}
		refs := filepath.Join("x", refsName)
		inside := filepath.Join(refs, filepath.FromSlash(r.revision()))
		if !strings.HasPrefix(inside, refs+string(filepath.Separator)) {
			t.Fatalf("the ref of %q is %q", text, inside)
		}
	})
}

// FuzzListing: whatever a server says, names stay in the snapshot and sizes within bounds.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"sha":"` + testCommit + `","siblings":[{"rfilename":"a/b","size":1,
		"blobId":"` + testCommit + `","lfs":{"sha256":"00","size":2}},{"rfilename":"../x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseListing(data)
		if err != nil {
			return
		}
		if !isCommit(l.commit) {
			t.Fatalf("commit %q", l.commit)
		}
		for name, file := range l.files {
			if name != file.Name || checkFileName(name) != nil || file.Size < -1 ||
				file.hash != "" && !isCommit(file.hash) {
				t.Fatalf("%q: %+v", name, file)
			}
			inside := filepath.Join("x", "y", filepath.FromSlash(name))
			if !strings.HasPrefix(inside, filepath.Join("x", "y")+string(filepath.Separator)) {
				t.Fatalf("%q leads to %q", name, inside)
			}
		}
	})
}

// FuzzIndex: the shards of any index are files beside it, each once.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors","b":"../y"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, err := shardsOf(data)
		if err != nil {
			return
		}
		for i, name := range names {
			if filepath.Base(name) != name || i > 0 && names[i-1] >= name {
				t.Fatalf("%q", names)
			}
		}
	})
}

func TestFromEnvironment(t *testing.T) {
	home := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".cache/huggingface/token", "hf_file\n")
	write("mine/token", " hf_mine ")
	write("elsewhere", "hf_else")
	write("broken", "hf_a\nhf_b")
	write("empty", "\n")
	at := func(path string) string { return filepath.Join(home, path) }
	usual := at(".cache/huggingface/hub")
	for _, c := range []struct {
		set   map[string]string
		want  Settings
		fails string
	}{
		{nil, Settings{defaultEndpoint, "hf_file", at(".cache/huggingface/token"), usual, false},
			""},
		{map[string]string{"HF_TOKEN": " hf_env\n", "HF_ENDPOINT": "http://mirror:8000/hf/"},
			Settings{"http://mirror:8000/hf", "hf_env", "HF_TOKEN", usual, false}, ""},
		{map[string]string{"HUGGING_FACE_HUB_TOKEN": "old", "HUGGINGFACE_HUB_CACHE": "/old"},
			Settings{defaultEndpoint, "old", "HUGGING_FACE_HUB_TOKEN", "/old", false}, ""},
		{map[string]string{"HF_HOME": "~/mine", "HF_HUB_OFFLINE": "yes"},
			Settings{defaultEndpoint, "hf_mine", at("mine/token"), at("mine/hub"), true}, ""},
		{map[string]string{"HF_HUB_CACHE": "$DISK/hub", "DISK": "/big", "HF_HOME": "/none"},
			Settings{Endpoint: defaultEndpoint, Cache: "/big/hub"}, ""},
		{map[string]string{"HF_TOKEN_PATH": "~/elsewhere"},
			Settings{defaultEndpoint, "hf_else", at("elsewhere"), usual, false}, ""},
		{map[string]string{"HF_TOKEN_PATH": "~/empty"},
			Settings{Endpoint: defaultEndpoint, Cache: usual}, ""},
		{map[string]string{"XDG_CACHE_HOME": "/xdg"},
			Settings{Endpoint: defaultEndpoint, Cache: "/xdg/huggingface/hub"}, ""},
		{map[string]string{"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"},
			Settings{Endpoint: defaultEndpoint, Cache: usual}, ""},
		{map[string]string{"HF_TOKEN_PATH": "~/broken"}, Settings{}, "holds a character"},
		{map[string]string{"HF_TOKEN_PATH": "~"}, Settings{}, "read the hub's token"},
		{map[string]string{"HF_ENDPOINT": "mirror"}, Settings{}, "HF_ENDPOINT is not an address"},
		{map[string]string{"HF_ENDPOINT": "ftp://x"}, Settings{}, "HF_ENDPOINT is not an address"},
		{map[string]string{"HF_ENDPOINT": "https://a:b@x"}, Settings{}, "HF_ENDPOINT is not an"},
	} {
		got, err := FromEnvironment(func(name string) string { return c.set[name] }, home)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) ||
				strings.Contains(err.Error(), "hf_") {
				t.Errorf("%v: %v, want %q", c.set, err, c.fails)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%v:\ngot  %+v, %v\nwant %+v", c.set, got, err, c.want)
		}
	}
	none := func(string) string { return "" }
	_, err := FromEnvironment(none, "")
	if err == nil || !strings.Contains(err.Error(), "HF_HOME") {
		t.Error(err)
	}
}

// clientCache is a cache as the hub's client leaves it: a model whose large file lies in the store
// that all models share, one of one commit that no ref names, one that is half there, and what is
// no model.
func clientCache(t *testing.T) Cache {
	t.Helper()
	c := Cache{t.TempDir()}
	write := func(path, text string) {
		path = filepath.Join(c.Folder, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, path string) {
		path = filepath.Join(c.Folder, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.FromSlash(target), path); err != nil {
			t.Fatal(err)
		}
	}
	other := strings.Repeat("a", 40)
	write("CACHEDIR.TAG", "")
	write("blobs/ab/abcd", "weights")
	link("../../blobs/ab/abcd", "models--acme--tiny/blobs/w")
	write("models--acme--tiny/blobs/c", "{}")
	write("models--acme--tiny/blobs/d.1234abcd.incomplete", "half")
	write("models--acme--tiny/refs/main", testCommit)
	write("models--acme--tiny/refs/refs/pr/7", testCommit+"\n")
	write("models--acme--tiny/trees/"+testCommit+".json", "{}")
	for name, blob := range map[string]string{"config.json": "c", "tokenizer.json": "c",
		"model.safetensors": "w"} {
		link("../../blobs/"+blob, "models--acme--tiny/snapshots/"+testCommit+"/"+name)
	}
	write("models--acme--loose/snapshots/"+other+"/config.json", "{}")
	write("models--gpt2/snapshots/"+other+"/config.json", "{}")
	write("models--acme--half/refs/main", other)
	link("../../blobs/gone", "models--acme--half/snapshots/"+other+"/model.safetensors")
	write("models--acme--half/snapshots/"+other+"/x.gguf", "gguf")
	write("models--acme--bad/refs/main", "../../x")
	write("models--acme--bad/snapshots/"+other+"/config.json", "{}")
	write("models--acme--empty/refs/main", other)
	write("datasets--acme--texts/snapshots/"+other+"/config.json", "{}")
	write("models--acme--file", "not a folder")
	return c
}

func TestFindWhatTheClientHasFetched(t *testing.T) {
	c := clientCache(t)
	for _, revision := range []string{"", "main", "refs/pr/7", testCommit} {
		s, err := c.Find(Ref{"acme", "tiny", revision})
		if err != nil || s.Commit != testCommit || s.Size != 11 || len(s.Missing) != 0 ||
			!slices.Equal(s.Refs, []string{"main", "refs/pr/7"}) {
			t.Errorf("%q: %+v, %v", revision, s, err)
		}
	}
	half, err := c.Find(Ref{"acme", "half", ""})
	lacks := []string{"config.json", "tokenizer.json", "model.safetensors"}
	if err != nil || !slices.Equal(half.GGUF, []string{"x.gguf"}) ||
		!slices.Equal(half.Missing, lacks) {
		t.Errorf("%+v, %v", half, err)
	}
	only := ", only acme/tiny@" + testCommit
	for ref, want := range map[Ref]string{
		{"acme", "none", ""}:   "acme/none is not on this machine, in " + c.Folder,
		{"acme", "loose", ""}:  "only acme/loose@" + strings.Repeat("a", 40),
		{"acme", "tiny", "v2"}: "acme/tiny@v2 is not on this machine" + only,
		{"acme", "bad", ""}:    "holds no commit",
		{"acme", "empty", ""}:  "no snapshot aaaa",
		{"acme", "file", ""}:   "not on this machine",

		{"acme", "tiny", strings.Repeat("b", 40)}: only,
	} {
		_, err := c.Find(ref)
		if !errors.Is(err, ErrNotCached) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
	}
}

func TestList(t *testing.T) {
	c := clientCache(t)
	all, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Model)
	}
	want := []string{"acme/bad", "acme/half", "acme/loose", "acme/tiny", "gpt2"}
	if !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if all, err := (Cache{filepath.Join(c.Folder, "none")}).List(); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := (Cache{filepath.Join(c.Folder, "CACHEDIR.TAG")}).List(); err == nil {
		t.Error("a file was listed")
	}
}
