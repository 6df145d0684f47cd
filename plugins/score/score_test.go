package score

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/abi/fields"
	"github.com/kvrelay/engine/plugins"
)

// twin evaluates expressions over structs, with Go's own arithmetic.
type twin struct {
	r    *abi.Record
	h    *abi.Header
	left uint32
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (w twin) name(name string) float64 {
	switch name {
	case "age_s":
		return float64(w.h.NowNS-w.r.ArrivalNS) / 1e9
	case "deadline_s":
		if w.r.DeadlineNS == 0 {
			return math.Inf(1)
		}
		return float64(w.r.DeadlineNS-w.h.NowNS) / 1e9
	case "budget":
		return float64(w.left)
	case "waiting":
		return number(w.r.State&abi.StateRunning == 0)
	case "priority":
		return float64(w.r.Priority)
	}
	if f, ok := fields.Find[abi.Record](name); ok {
		return float64(fields.Get(w.r, f))
	}
	f, _ := fields.Find[abi.Header](name)
	return float64(fields.Get(w.h, f))
}

func (w twin) eval(n ast.Expr) float64 {
	switch n := n.(type) {
	case *ast.ParenExpr:
		return w.eval(n.X)
	case *ast.BasicLit:
		v, _ := strconv.ParseFloat(n.Value, 64)
		return v
	case *ast.Ident:
		return w.name(n.Name)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			return number(w.eval(n.X) == 0)
		}
		return -w.eval(n.X)
	case *ast.CallExpr:
		return w.call(n)
	}
	b := n.(*ast.BinaryExpr)
	return binary2(b.Op, w.eval(b.X), w.eval(b.Y))
}

func binary2(op token.Token, x, y float64) float64 {
	switch op {
	case token.ADD:
		return x + y
	case token.SUB:
		return x - y
	case token.MUL:
		return x * y
	case token.QUO:
		return x / y
	case token.REM:
		q := math.Trunc(x / y)
		p := y * q // Rounded apart: no fused multiply-add.
		return x - float64(p)
	case token.LAND:
		return number(x != 0 && y != 0)
	case token.LOR:
		return number(x != 0 || y != 0)
	case token.LSS:
		return number(x < y)
	case token.GEQ:
		return number(x >= y)
	case token.EQL:
		return number(x == y)
	}
	panic(op)
}

func (w twin) call(n *ast.CallExpr) float64 {
	v := make([]float64, len(n.Args))
	for i, arg := range n.Args {
		v[i] = w.eval(arg)
	}
	switch n.Fun.(*ast.Ident).Name {
	case "min":
		return math.Min(v[0], v[1])
	case "max":
		return math.Max(math.Max(v[0], v[1]), v[len(v)-1])
	case "abs":
		return math.Abs(v[0])
	case "floor":
		return math.Floor(v[0])
	case "sqrt":
		return math.Sqrt(v[0])
	case "when":
		if v[0] != 0 {
			return v[1]
		}
		return v[2]
	}
	panic(n)
}

// naive decides a step as a score policy must, slowly.
func naive(t *testing.T, s Source, v *abi.View) []abi.Decision {
	t.Helper()
	score, err := parser.ParseExpr(s.Score)
	if err != nil {
		t.Fatal(err)
	}
	h := &v.Header
	left := h.TokenBudget - min(h.TokenBudget, h.DecodeTokens)
	scores := map[uint32]float64{}
	var slots []uint32
	for slot := range v.Records {
		r := &v.Records[slot]
		if r.State&(abi.StateLive|abi.StateDecoding) != abi.StateLive || r.RemainingPrefill == 0 {
			continue
		}
		got := twin{r, h, left}.eval(score)
		if math.IsNaN(got) {
			got = math.Inf(1)
		}
		scores[uint32(slot)] = got
		slots = append(slots, uint32(slot))
	}
	slices.SortFunc(slots, func(a, b uint32) int {
		if scores[a] != scores[b] {
			return int(2*number(scores[a] > scores[b]) - 1)
		}
		return int(2*number(v.Records[a].ID > v.Records[b].ID) - 1)
	})
	var out []abi.Decision
	for _, slot := range slots[:min(len(slots), 256, int(h.DecisionsCap))] {
		r := &v.Records[slot]
		n := aligned(min(left, r.RemainingPrefill, h.ChunkMax), r, h)
		if n == 0 {
			break
		}
		if s.Chunk != "" {
			chunk, _ := parser.ParseExpr(s.Chunk)
			c := twin{r, h, left}.eval(chunk)
			switch {
			case !(c > 0):
				n = 0
			case c < float64(n):
				n = aligned(uint32(c), r, h)
			}
		}
		if n > 0 {
			out = append(out, abi.Decision{Slot: slot, Tokens: n, IDLow: uint32(r.ID)})
			left -= n
		}
	}
	return out
}

func aligned(n uint32, r *abi.Record, h *abi.Header) uint32 {
	if n < r.RemainingPrefill && h.ChunkAlign > 1 {
		n -= n % h.ChunkAlign
	}
	return n
}

const slots = 300

// table makes a table of all states.
func table(chance *rand.Rand) *abi.View {
	v := &abi.View{Header: abi.Header{
		NowNS: 5e9, TokenBudget: chance.Uint32N(4096), ChunkMax: chance.Uint32N(1024),
		ChunkAlign: []uint32{0, 1, 16}[chance.IntN(3)], DecodeTokens: chance.Uint32N(40),
		DecisionsCap: 1 + chance.Uint32N(64), MaxSeqs: 64, FreePages: chance.Uint32N(5000),
		Flags: abi.FlagResync, Step: 1,
	}}
	states := []uint32{0, 1, 1, 1, 3, 7}
	for i := range chance.IntN(slots) {
		v.Records = append(v.Records, abi.Record{
			ID: uint64(i*7+1) % 997, ArrivalNS: chance.Int64N(5e9),
			DeadlineNS: chance.Int64N(3) * 3e9, Priority: chance.Int32N(5) - 2,
			State:        states[chance.IntN(len(states))],
			PromptTokens: 1 + chance.Uint32N(3000), RemainingPrefill: chance.Uint32N(900),
			Class: uint8(chance.IntN(3)), Peer: uint16(chance.IntN(3)),
			UserTag: chance.Uint64N(9), PredictedOutput: chance.Uint32N(100),
		})
		v.Changed = append(v.Changed, uint32(i))
	}
	v.Header.NSlots = uint32(len(v.Records))
	return v
}

// expression makes one by chance.
func expression(chance *rand.Rand, depth int) string {
	names := []string{"age_s", "deadline_s", "budget", "waiting", "priority", "remaining_prefill",
		"prompt_tokens", "class", "peer", "user_tag", "free_pages", "predicted_output"}
	if depth == 0 || chance.IntN(6) == 0 {
		if chance.IntN(3) == 0 {
			return fmt.Sprintf("%.2f", 100*chance.Float64())
		}
		return names[chance.IntN(len(names))]
	}
	x, y := expression(chance, depth-1), expression(chance, depth-1)
	switch chance.IntN(9) {
	case 0:
		return "min(" + x + ", " + y + ")"
	case 1:
		return "max(" + x + ", " + y + ")"
	case 2:
		return "abs(" + x + ")"
	case 3:
		return "when(" + x + " < " + y + ", " + y + ", floor(" + x + "))"
	case 4:
		return "!(-" + x + ")"
	}
	ops := []string{"+", "-", "*", "/", "%", "&&", "||", "<", ">=", "=="}
	return "(" + x + " " + ops[chance.IntN(len(ops))] + " " + y + ")"
}

func TestAgainstNaive(t *testing.T) {
	const seed = 11
	chance := rand.New(rand.NewPCG(seed, 1))
	sources := []Source{
		{Name: "a", Score: "remaining_prefill - 200*age_s - 1000*priority"},
		{Name: "b", Score: "remaining_prefill - 200*age_s - 1000*priority",
			Chunk: "min(1024, budget)"},
		{Name: "c", Score: "deadline_s", Chunk: "when(waiting, 64, 128)"},
		{Name: "d", Score: "0/0", Chunk: "budget / 3"},
		{Name: "e", Score: "-arrival_ns"},
		{Name: "f", Score: "priority % 2 + sqrt(class)", Chunk: "-1 + 0*sqrt(-1)"},
	}
	for i := range 30 {
		s := Source{Name: fmt.Sprint("r", i), Score: expression(chance, 4)}
		if i%2 == 0 {
			s.Chunk = expression(chance, 3)
		}
		sources = append(sources, s)
	}
	for _, s := range sources {
		wasm, err := Compile(s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		w, err := plugins.OpenWorkbench(t.Context(), plugins.Spec{Wasm: wasm},
			plugins.WorkbenchOptions{Slots: slots, Decisions: 64})
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		for range 50 {
			v := table(chance)
			got, _, err := w.Decide(v, nil)
			if err == nil {
				err = plugins.Judge(v, got)
			}
			want := naive(t, s, v)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, %+v: %v\ngot  %v\nwant %v", seed, s, err, got, want)
			}
		}
		w.Close()
	}
}

func TestCheckPasses(t *testing.T) {
	wasm, err := Compile(Source{Name: "mine", Score: "remaining_prefill - 200*age_s",
		Chunk: "min(1024, budget)"})
	if err != nil {
		t.Fatal(err)
	}
	limits := plugins.DefaultLimits()
	limits.Fuel = Fuel(10_000)
	r := plugins.Check(t.Context(), wasm, nil, limits)
	if !r.OK() || len(r.Warnings) > 0 {
		t.Errorf("%+v %v", r.Problems, r.Warnings)
	}
	for _, l := range r.Lines {
		if l.Name == "descriptor" && !strings.HasPrefix(l.Text, "mine 1 · ABI 1.0") {
			t.Error(l.Text)
		}
	}
}

func TestErrorsPoint(t *testing.T) {
	for _, c := range []struct{ text, why, caret string }{
		{"remaining - 1", "did you mean remaining_prefill", "^^^^^^^^^"},
		{"1 + ", "expected operand", "    ^"},
		{"priority - 200*age", `there is no "age"; did you mean age_s`, "               ^^^"},
		{"2 + priorty", `no "priorty"; did you mean priority?`, "    ^^^^^^^"},
		{"minimum(1, 2)", "no function", "^^^^^^^"},
		{"min(1)", "takes 2 arguments or more, got 1", "^^^^^^"},
		{"abs(1, 2)", "takes 1 arguments, got 2", "^^^^^^^^^"},
		{"1 & 2", "operator & is not known", "  ^"},
		{`"a" + 1`, "not a decimal number", "^^^"},
		{"a.b", "only numbers, names", "^^^"},
		{"", "no expression", "^"},
		{"(1", "expected ')'", "  ^"},
		{"2 * ^1", "operator ^", "    ^^"},
		{strings.Repeat("1+", 600) + "1", "parts", ""},
		{strings.Repeat("(", 5000), "longer", ""},
	} {
		_, err := Compile(Source{Name: "x", Score: c.text})
		var e *Error
		if !errors.As(err, &e) || e.Key != "score" || !strings.Contains(e.Why, c.why) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.why)
			continue
		}
		if want := c.text + "\n" + c.caret; c.caret != "" && e.Caret() != want {
			t.Errorf("got\n%s\nwant\n%s", e.Caret(), want)
		}
	}
	_, err := Compile(Source{Name: "x", Score: "1", Chunk: "nope"})
	if err == nil || !strings.HasPrefix(err.Error(), "chunk, character 1:") {
		t.Error(err)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("remaining_prefill - 200*age_s - 1000*priority")
	f.Add("when(waiting, min(1, 2), 3 % 4) && !(1 < 2)")
	f.Fuzz(func(t *testing.T, text string) {
		wasm, err := Compile(Source{Name: "x", Score: text})
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Caret() == "") {
			t.Fatalf("%v", err)
		}
		if err != nil {
			return
		}
		w, err := plugins.OpenWorkbench(t.Context(), plugins.Spec{Wasm: wasm},
			plugins.WorkbenchOptions{Slots: 4, Decisions: 4})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		w.Close()
	})
}

// TestTemplate compares the template with its source.
func TestTemplate(t *testing.T) {
	tool, err := exec.LookPath("wat2wasm")
	if err != nil {
		t.Skip("wat2wasm is not installed")
	}
	out := filepath.Join(t.TempDir(), "out.wasm")
	if text, err := exec.Command(tool, "template.wat", "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	built, err := os.ReadFile(out)
	if err != nil || !bytes.Equal(built, template) {
		t.Errorf("template.wasm is not what template.wat gives (%v)", err)
	}
}
