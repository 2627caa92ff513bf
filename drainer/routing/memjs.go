package routing

// memjs is memjs with its defaults: a string hash like Java's, its absolute
// value modulo the number of servers, in list order.
//
// Source: memjs's lib/memjs/utils.js (hashCode) and memjs.js (getServer).
func init() {
	register("memjs", func(servers []Server) (Owner, error) {
		return absHashCodeModulo(len(servers)), nil
	})
}

type absHashCodeModulo int64

func (n absHashCodeModulo) Owner(key []byte) int {
	h := int64(int32(hashCode(key)))
	return int(max(h, -h) % int64(n))
}
