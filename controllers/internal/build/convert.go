package build

import (
	"encoding/json"
	"fmt"
)

// convert turns an API type that a person wrote in the spec into its apply
// configuration: both have the same JSON. It panics where they don't, which no
// input can bring about. A nil stays nil.
func convert[AC, T any](value *T) *AC {
	if value == nil {
		return nil
	}
	b, err := json.Marshal(value)
	ac := new(AC)
	if err == nil {
		err = json.Unmarshal(b, ac)
	}
	if err != nil {
		panic(fmt.Sprintf("convert %T to %T: %v", value, ac, err))
	}
	return ac
}
