package transfer

// Compat is all that must be equal at both ends so that a page of one means the same at the other.
// Every value is compared as it stands.
type Compat struct {
	Model    string // digest of the model's configuration
	Weights  string // digest of its weights
	DType    string // of the KV: f32, f16, bf16
	PageSize int    // slots
	Layers   int
	KVHeads  int
	HeadDim  int
	Rope     string // the rotation schedule in words, such as "theta=10000"
	Window   int    // tokens; 0 = none
	Sinks    int
	Numerics string // gpu.Device.Numerics: the class of summation order
	Protocol int    // ProtocolVersion; 0 is read as that
}
