package sim

import "slices"

// Shrink takes away from a world that breaks an invariant what it breaks without: faults first,
// then clients, then instances' own policies. It returns the smaller world and its error.
func Shrink(c Config) (Config, error) {
	_, err := Run(c)
	if err == nil {
		return c, nil
	}
	try := func(smaller Config) bool {
		_, again := Run(smaller)
		if again != nil {
			c, err = smaller, again
		}
		return again != nil
	}
	for n := len(c.Faults) - 1; n >= 0; n-- {
		smaller := c
		smaller.Faults = slices.Delete(slices.Clone(c.Faults), n, n+1)
		try(smaller)
	}
	for n := len(c.Requests) - 1; n >= 0 && len(c.Requests) > 1; n-- {
		smaller := c
		smaller.Requests = slices.Delete(slices.Clone(c.Requests), n, n+1)
		try(smaller)
	}
	for n := range c.Instances {
		smaller := c
		smaller.Instances = slices.Clone(c.Instances)
		smaller.Instances[n].Policy = BuiltIn
		try(smaller)
	}
	return c, err
}
