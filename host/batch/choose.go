package batch

// Chooser chooses the token that follows an item from the best of its logits, so that a model whose
// logits lie elsewhere need not bring them all.
type Chooser interface {
	// Looks is how many of the largest logits it looks at, 1 for the very largest alone, and what
	// divides them in Best.Sum. 0: it needs all.
	Looks() (best int, temperature float32)
	// Choose is called within the pass. After true the model gives nil for the row, after false all
	// of it.
	Choose(Best) bool
}

// Best are the largest logits of a row: as many as somebody of the batch looks at, or all there
// are. A row of which there is nothing to say, because of a NaN or an infinity, is not offered.
type Best struct {
	// IDs are their tokens, larger logits first and lower IDs first among equals. Nobody keeps the
	// slices.
	IDs    []int32
	Logits []float32 // nil where nobody looks at more than one
	// Vocabulary is how many logits the row has, Sum Σ exp((logit - largest)/temperature) over all
	// of them, at most SumError of it off.
	Vocabulary    int
	Sum, SumError float64
}
