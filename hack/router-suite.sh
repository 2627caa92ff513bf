#!/usr/bin/env bash
# Runs memcached's own tests against the router, in front of one memcached:
#   hack/router-suite.sh DRAINER SOURCE [TEST…]
# SOURCE is memcached's source, in which memcached-debug and timedrun are built (./autogen.sh &&
# ./configure && make memcached-debug timedrun). It prints how many of each test's checks hold when
# memcached is asked itself, and through the router. docs/router.md says what differs.
set -euo pipefail

drainer=$(realpath "$1") source=$(realpath "$2")
shift 2
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(64bit binary-get bogus-commands cas chunked-items dash-M expirations flags flush-all
  getandtouch getset incrdecr issue_3 issue_14 issue_22 issue_29 issue_42 issue_50 issue_68 issue_70 issue_104 issue_108
  issue_140 issue_152 issue_163 issue_183 issue_192 issue_260 item_size_max line-lengths malicious-commands metaget
  misbehave multiversioning noreply quit strtol-testing touch whitespace)

work=$(mktemp -d)
[ -n "${KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
cp -r "$source/t" "$work/t"
ln -s "$source/timedrun" "$work/timedrun"
ln -s "$source/scripts" "$work/scripts" 2>/dev/null || true

# memcached-debug, as the tests start it, with a router in front of its TCP port.
cat >"$work/routed" <<EOF
#!/usr/bin/env bash
real=$source/memcached-debug
case " \$* " in *" -h "*) exec "\$real" -h ;; esac
args=() port=
while [ \$# -gt 0 ]; do
  case \$1 in
    -p) port=\$2; shift ;;
    -U) shift ;;
    *) args+=("\$1") ;;
  esac
  shift
done
behind=\$((port - 10000))
"\$real" "\${args[@]}" -l 127.0.0.1 -p \$behind -U 0 & member=\$!
$drainer route --client=gomemcache --server=127.0.0.1:\$behind --listen=127.0.0.1:\$port --admin= --slow=0 --linger=0s --spread=0s --member-timeout=10s 2>/dev/null & router=\$!
trap 'kill \$router \$member 2>/dev/null; wait' EXIT INT TERM
wait -n
EOF
chmod +x "$work/routed"
# Without Unix sockets, which the router does not have.
cat >"$work/plain" <<EOF
#!/usr/bin/env bash
exec $source/memcached-debug "\$@"
EOF
chmod +x "$work/plain"
sed -i 's/return 1 if $output =~ \/unix-socket\/i;/return 0;/' "$work/t/lib/MemcachedTest.pm"

run() { # PROGRAM TEST: how many checks hold, and how many there are
  ln -sf "$1" "$work/memcached-debug"
  local out planned
  out=$(cd "$work" && timeout 60 perl -It/lib "t/$2.t" 2>"$work/$2.$1.err") || true
  printf '%s\n' "$out" >"$work/$2.$1.out"
  planned=$(grep -oE '^1\.\.[0-9]+' <<<"$out" || true)
  printf '%s/%s' "$(grep -c '^ok' <<<"$out" || true)" "${planned#1..}"
}

echo "| test | memcached | through the router |"
echo "|---|---:|---:|"
for test in "${tests[@]}"; do
  direct=$(run plain "$test")
  routed=$(run routed "$test")
  echo "| $test | $direct | $routed |"
  [ "$direct" = "$routed" ] || [ -z "${VERBOSE:-}" ] || grep '^not ok' "$work/$test.routed.out" >&2 || tail -n 3 "$work/$test.routed.err" >&2
done
