package plugins

import "context"

// takeSpare hands out the warm spare, if there is one, and has the next one made.
func (g *generation) takeSpare() *sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.spare
	g.spare = nil
	g.refill()
	return s
}

// discard throws the sandbox that decides away and has a spare made if there is none.
func (g *generation) discard() {
	if g.current != nil {
		g.current.close()
		g.current = nil
	}
	g.warm()
}

// fresh makes the sandbox that decides one that has not decided yet; false when there is none at
// hand.
func (g *generation) fresh() bool {
	if g.current != nil && !g.decided {
		return true
	}
	spare := g.takeSpare()
	if spare == nil {
		return false
	}
	g.discard()
	g.current, g.decided = spare, false
	return true
}

// refill starts making a spare when there is none. The caller holds g.mu.
func (g *generation) refill() {
	if g.spare != nil || g.building || g.closed {
		return
	}
	g.building = true
	g.builders.Add(1)
	done := make(chan struct{})
	g.built = done
	go func() {
		defer g.builders.Done()
		defer close(done)
		s, f := g.newSandbox()
		if f == nil {
			s.keepInput()
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.building = false
		g.spare, g.failed = s, f
	}()
}

// await waits until the spare that is being made is there, or is known to fail: within the fuel of
// a load. A step never waits so.
func (g *generation) await() {
	g.mu.Lock()
	built := g.built
	g.mu.Unlock()
	if built != nil {
		<-built
	}
}

// warm has a spare made if there is none.
func (g *generation) warm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refill()
}

// spareFault returns why the last attempt to make a spare failed, once.
func (g *generation) spareFault() *Fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.failed
	g.failed = nil
	return f
}

// close ends the generation: its builder first, then every sandbox, then the code. Nobody may be
// inside a sandbox.
func (g *generation) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.builders.Wait()
	g.drop()
}

// drop ends the runtime.
func (g *generation) drop() {
	defer func() { _ = recover() }() // The runtime may fail on what a guest left.
	ctx := context.Background()
	if g.runtime != nil {
		_ = g.runtime.Close(ctx)
	}
	if g.cache != nil {
		_ = g.cache.Close(ctx)
	}
	g.runtime, g.cache, g.compiled = nil, nil, nil
}
