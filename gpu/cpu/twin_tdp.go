package cpu

import "github.com/kvrelay/engine/gpu"

// twinPlanes are the planes of a row of numbers in the class tdp, filled up to whole stretches:
// number k has planes [k][:].
type twinPlanes [][maxPlanes]float32

func newTwinPlanes(row []float32, split func(planes []float32, x float32), n int) twinPlanes {
	p := make(twinPlanes, (len(row)+tdpStep-1)/tdpStep*tdpStep)
	for k, x := range row {
		split(p[k][:n], x)
	}
	return p
}

// activationPlanes are those that meet weights of a type, weightPlanes those of the weights.
func activationPlanes(dtype gpu.DType, x []float32) twinPlanes {
	return newTwinPlanes(x, splitActivation, tdpForms[dtype].xPlanes)
}

func weightPlanes(dtype gpu.DType, w []float32) twinPlanes {
	return newTwinPlanes(w, splitWeight, tdpForms[dtype].wPlanes)
}

// tdpSum adds activations times weights to sum.
func tdpSum(products []tdpProduct, x, w twinPlanes, sum float32) float32 {
	for k := 0; k < len(x); k += tdpStep {
		for _, p := range products {
			even, odd := float32(0), float32(0)
			for i := k; i < k+tdpStep; i += 2 {
				even = fmaFlush(x[i][p.x], w[i][p.w], even)
				odd = fmaFlush(x[i+1][p.x], w[i+1][p.w], odd)
			}
			sum = addFlush(sum, addFlush(even, odd))
		}
	}
	return sum
}
