package build

import (
	"encoding/json"
	"fmt"
)

// convert turns an API type from the spec into its apply configuration. Both have the same JSON, so
// the conversion can't fail; convert panics if it does. nil stays nil.
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
