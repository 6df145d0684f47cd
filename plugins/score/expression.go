package score

import (
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds of an expression.
const (
	maxBytes = 4096
	maxNodes = 500
)

// The opcodes that are needed.
const (
	opEnd       = 0x0b
	opSelect    = 0x1b
	opLocalGet  = 0x20
	opLocalSet  = 0x21
	opI32Load   = 0x28
	opI64Load   = 0x29
	opI32Load8  = 0x2d
	opI32Load16 = 0x2f
	opI32Const  = 0x41
	opF64Const  = 0x44
	opI32Eqz    = 0x45
	opI64Eqz    = 0x50
	opF64Eq     = 0x61
	opF64Ne     = 0x62
	opF64Lt     = 0x63
	opF64Gt     = 0x64
	opF64Le     = 0x65
	opF64Ge     = 0x66
	opI32And    = 0x71
	opI32Or     = 0x72
	opI64Sub    = 0x7d
	opF64Abs    = 0x99
	opF64Neg    = 0x9a
	opF64Ceil   = 0x9b
	opF64Floor  = 0x9c
	opF64Trunc  = 0x9d
	opF64Sqrt   = 0x9f
	opF64Add    = 0xa0
	opF64Sub    = 0xa1
	opF64Mul    = 0xa2
	opF64Div    = 0xa3
	opF64Min    = 0xa4
	opF64Max    = 0xa5
	opF64OfI32  = 0xb7
	opF64OfU32  = 0xb8
	opF64OfI64  = 0xb9
	opF64OfU64  = 0xba
	typeF64     = 0x7c
)

// The parameters of the functions that are replaced.
const (
	localRecord = 0
	localHeader = 1
	localLeft   = 2
	localFirst  = 3 // the first of our own
)

// compiler turns one expression into a function's body.
type compiler struct {
	key, text string
	base      int // position of the text's first byte
	code      []byte
	locals    int
	nodes     int
}

// compile makes the body of a function: locals, then code that leaves one f64.
func compile(key, text string) ([]byte, error) {
	c := &compiler{key: key, text: text}
	tree, err := c.parse()
	if err == nil {
		err = c.value(tree)
	}
	if err != nil {
		return nil, err
	}
	body := []byte{0}
	if c.locals > 0 {
		body = binary.AppendUvarint([]byte{1}, uint64(c.locals))
		body = append(body, typeF64)
	}
	return append(append(body, c.code...), opEnd), nil
}

// parse reads the text by Go's grammar of expressions.
func (c *compiler) parse() (ast.Expr, error) {
	if strings.TrimSpace(c.text) == "" {
		return nil, c.wrong(0, 1, "there is no expression")
	}
	if len(c.text) > maxBytes {
		return nil, c.wrong(maxBytes, 1, fmt.Sprintf("longer than %d bytes", maxBytes))
	}
	files := token.NewFileSet()
	c.base = files.Base()
	tree, err := parser.ParseExprFrom(files, "", c.text, parser.SkipObjectResolution)
	var list scanner.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		return nil, c.wrong(list[0].Pos.Offset, 1, list[0].Msg)
	}
	if err != nil {
		return nil, c.wrong(0, 1, err.Error())
	}
	return tree, nil
}

func (c *compiler) wrong(offset, length int, why string) error {
	return &Error{Key: c.key, Text: c.text, Offset: min(max(offset, 0), len(c.text)),
		Length: max(length, 1), Why: why}
}

// at points at a part of the expression.
func (c *compiler) at(n ast.Node, format string, args ...any) error {
	return c.wrong(int(n.Pos())-c.base, int(n.End()-n.Pos()), fmt.Sprintf(format, args...))
}

func (c *compiler) emit(code ...byte) { c.code = append(c.code, code...) }

func (c *compiler) number(v float64) {
	c.emit(opF64Const)
	c.code = binary.LittleEndian.AppendUint64(c.code, math.Float64bits(v))
}

// value emits code that leaves the expression's value.
func (c *compiler) value(n ast.Expr) error {
	if c.nodes++; c.nodes > maxNodes {
		return c.at(n, "more than %d parts", maxNodes)
	}
	switch n := n.(type) {
	case *ast.ParenExpr:
		return c.value(n.X)
	case *ast.BasicLit:
		v, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
		if n.Kind != token.INT && n.Kind != token.FLOAT || err != nil {
			return c.at(n, "%s is not a decimal number", n.Value)
		}
		c.number(v)
	case *ast.Ident:
		w, ok := find(n.Name)
		if !ok {
			return c.at(n, "there is no %q%s", n.Name, meant(n.Name))
		}
		w.emit(c)
	case *ast.UnaryExpr:
		return c.unary(n)
	case *ast.BinaryExpr:
		return c.binary(n)
	case *ast.CallExpr:
		return c.call(n)
	default:
		return c.at(n, "only numbers, names, operators and calls can be used")
	}
	return nil
}

// truth emits code that leaves 1 or 0 as an i32: whether the value is not 0.
func (c *compiler) truth(n ast.Expr) error {
	if err := c.value(n); err != nil {
		return err
	}
	c.number(0)
	c.emit(opF64Ne)
	return nil
}

func (c *compiler) unary(n *ast.UnaryExpr) error {
	switch n.Op {
	case token.ADD:
		return c.value(n.X)
	case token.SUB:
		err := c.value(n.X)
		c.emit(opF64Neg)
		return err
	case token.NOT:
		err := c.truth(n.X)
		c.emit(opI32Eqz, opF64OfU32)
		return err
	}
	return c.at(n, "operator %s is not known", n.Op)
}

// arithmetic and comparisons are the operators that are one instruction.
func arithmetic(op token.Token) (byte, bool) {
	code, ok := map[token.Token]byte{token.ADD: opF64Add, token.SUB: opF64Sub, token.MUL: opF64Mul,
		token.QUO: opF64Div}[op]
	return code, ok
}

func comparison(op token.Token) (byte, bool) {
	code, ok := map[token.Token]byte{token.EQL: opF64Eq, token.NEQ: opF64Ne, token.LSS: opF64Lt,
		token.GTR: opF64Gt, token.LEQ: opF64Le, token.GEQ: opF64Ge}[op]
	return code, ok
}

func (c *compiler) binary(n *ast.BinaryExpr) error {
	if n.Op == token.LAND || n.Op == token.LOR {
		if err := errors.Join(c.truth(n.X), c.truth(n.Y)); err != nil {
			return first(err)
		}
		op := byte(opI32And)
		if n.Op == token.LOR {
			op = opI32Or
		}
		c.emit(op, opF64OfU32)
		return nil
	}
	if err := errors.Join(c.value(n.X), c.value(n.Y)); err != nil {
		return first(err)
	}
	if code, ok := arithmetic(n.Op); ok {
		c.emit(code)
		return nil
	}
	if code, ok := comparison(n.Op); ok {
		c.emit(code, opF64OfU32)
		return nil
	}
	if n.Op == token.REM {
		c.remainder()
		return nil
	}
	return c.wrong(int(n.OpPos)-c.base, len(n.Op.String()),
		fmt.Sprintf("operator %s is not known", n.Op))
}

// first is the first of joined errors.
func first(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return err
}

// remainder is x - y*trunc(x/y) of the two values on the stack.
func (c *compiler) remainder() {
	const x, y = localFirst, localFirst + 1
	c.locals = 2
	c.emit(opLocalSet, y, opLocalSet, x, opLocalGet, x, opLocalGet, y)
	c.emit(opLocalGet, x, opLocalGet, y, opF64Div, opF64Trunc, opF64Mul, opF64Sub)
}

// function is a function of expressions: how many arguments it takes, and its instruction. With
// most
// 0 it takes two or more, one after the other.
type function struct {
	least, most int
	op          byte
}

func functions() map[string]function {
	return map[string]function{
		"min": {2, 0, opF64Min}, "max": {2, 0, opF64Max}, "abs": {1, 1, opF64Abs},
		"floor": {1, 1, opF64Floor}, "ceil": {1, 1, opF64Ceil}, "sqrt": {1, 1, opF64Sqrt},
		"when": {3, 3, opSelect},
	}
}

func (c *compiler) call(n *ast.CallExpr) error {
	name, ok := n.Fun.(*ast.Ident)
	if !ok {
		return c.at(n.Fun, "this cannot be called")
	}
	f, ok := functions()[name.Name]
	if !ok {
		return c.at(name, "there is no function %q; there are abs, ceil, floor, max, min, sqrt, "+
			"when(condition, then, otherwise)", name.Name)
	}
	if len(n.Args) < f.least || f.most > 0 && len(n.Args) > f.most {
		return c.at(n, "%s takes %d arguments%s, got %d", name.Name, f.least,
			map[bool]string{true: " or more"}[f.most == 0], len(n.Args))
	}
	if f.op == opSelect {
		args := n.Args
		err := errors.Join(c.value(args[1]), c.value(args[2]), c.truth(args[0]))
		c.emit(opSelect)
		return first(err)
	}
	for i, arg := range n.Args {
		if err := c.value(arg); err != nil {
			return err
		}
		if i > 0 || f.most == 1 {
			c.emit(f.op)
		}
	}
	return nil
}

// meant is a hint at names that are near.
func meant(name string) string {
	var near []string
	for _, w := range Words() {
		if strings.HasPrefix(w.Name, name) || strings.HasPrefix(name, w.Name) ||
			strings.Contains(w.Name, name) || distance(w.Name, name) <= 2 {
			near = append(near, w.Name)
		}
	}
	if len(near) == 0 {
		return "; fields of a request and of the header have the names of SPEC.md"
	}
	slices.Sort(near)
	return "; did you mean " + strings.Join(near[:min(len(near), 3)], " or ") + "?"
}

// distance is how many letters must be put in, left out or changed to make one name of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
