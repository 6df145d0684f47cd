package access

import (
	"net/http"
	"slices"
	"strings"

	"github.com/kvrelay/engine/host/openai"
)

// Visit is one request that was let in. All methods of a nil Visit allow everything: listeners
// without a gate have none. It belongs to the goroutine that answers the request.
type Visit struct {
	gate         *Gate
	account      *account
	answer       http.Header
	name, tenant string
	models       []string
	anyModel     bool
	counted      bool
	estimate     int
}

// Name is the key's name, "" without one.
func (v *Visit) Name() string {
	if v == nil {
		return ""
	}
	return v.name
}

// Tenant is whom the key belongs to, "" when the request may say so itself.
func (v *Visit) Tenant() string {
	if v == nil {
		return ""
	}
	return v.tenant
}

// Sees says whether what one tenant does may be shown to this visitor.
func (v *Visit) Sees(tenant string) bool {
	return v == nil || v.name == "" || tenant == v.tenant && tenant != ""
}

// Allows says whether a model may be used.
func (v *Visit) Allows(model string) *openai.Error {
	if v == nil || v.anyModel || slices.Contains(v.models, model) {
		return nil
	}
	return openai.Errorf(openai.CodeModelNotAllowed, "model",
		"the key %q may not use the model %q; "+
			"it may use: %s", v.name, model, strings.Join(v.models, ", "))
}

// Spend takes the tokens that a request may need. Settle corrects that once they are known.
func (v *Visit) Spend(estimate int) *openai.Error {
	if v == nil {
		return nil
	}
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	now := v.gate.now()
	fault := v.account.spend(estimate, now)
	if fault == nil {
		v.estimate += estimate
	}
	v.account.tell(v.answer, now)
	return fault
}

// Settle replaces what was estimated by what was used.
func (v *Visit) Settle(used int) {
	if v == nil {
		return
	}
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.account.adjust(used-v.estimate, v.gate.now())
	v.estimate = used
}

// Leave ends the visit.
func (v *Visit) Leave() {
	if v == nil || !v.counted {
		return
	}
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.counted = false
	v.account.open--
}
