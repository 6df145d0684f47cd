package transfer

// framesAhead bounds the frames that were packed and wait for the connection: enough that packing
// goes on while a write waits, few enough that they stay in the processor's cache.
const framesAhead = 2

// order leaves a shipment to prepare.
func (o *Outgoing) order(what *shipment) {
	o.mu.Lock()
	if !o.ended {
		o.orders = append(o.orders, what)
	}
	o.mu.Unlock()
	signal(o.ordered)
}

// signal wakes who waits on a channel that holds one signal.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// prepare packs what was ordered, a few frames ahead of the connection, until the transfer is over.
// It runs beside the goroutine of the connection, so that one packs while the other writes.
func (o *Outgoing) prepare() {
	for {
		what := o.nextOrder()
		if what == nil {
			return
		}
		if what.isSeal() {
			o.enqueue(func() { o.machine.queue = append(o.machine.queue, what) })
			continue
		}
		if what.piece != nil {
			frame, alive := o.place(what)
			if !alive || frame != nil && !o.awaitRoom() {
				return
			}
			if frame != nil {
				o.ship(frame)
				continue
			}
		}
		for {
			frame, bad := o.machine.frame(what)
			if bad != nil {
				o.giveUp(bad)
				return
			}
			if frame == nil {
				break
			}
			if !o.awaitRoom() {
				return
			}
			o.ship(frame)
		}
	}
}

// nextOrder waits for an order; nil means that the transfer is over.
func (o *Outgoing) nextOrder() *shipment {
	for {
		o.mu.Lock()
		var next *shipment
		if len(o.orders) > 0 {
			next, o.orders = o.orders[0], o.orders[1:]
		}
		o.mu.Unlock()
		if next != nil {
			return next
		}
		select {
		case <-o.ordered:
		case <-o.quit:
			return nil
		}
	}
}

// awaitRoom waits until another frame may wait for the connection. False: the transfer is over.
func (o *Outgoing) awaitRoom() bool {
	for {
		o.mu.Lock()
		full := len(o.machine.queue) >= framesAhead
		o.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-o.roomy:
		case <-o.quit:
			return false
		}
	}
}
