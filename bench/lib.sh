# What the benchmarks of clusters share: a served lab, an inventory in it, and measuring a command against it.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ichor-bench.XXXXXX")
lab=""
trap '[ -z "$lab" ] || kill "$lab" 2> /dev/null; rm -rf "$scratch"' EXIT
[ -x /usr/bin/time ] || { echo "bench: needs GNU time at /usr/bin/time" >&2; exit 2; }
command -v jq > /dev/null || { echo "bench: needs jq" >&2; exit 2; }
if [ -z "${ICHOR:-}" ]; then
    cargo build --quiet --release --manifest-path "$repository/Cargo.toml" --package ichor
    ICHOR=${CARGO_TARGET_DIR:-$repository/target}/release/ichor
fi
ICHOR=$(realpath "$ICHOR")
hosts=(pve1 pve2 pve3 pve4 pve5 pve6)

# serve [OPTION...]: a lab with six hosts in a folder of its own, which becomes the current one.
serve() {
    local host options=()
    for host in "${hosts[@]}"; do options+=(--host "$host=512:4096"); done
    cd "$(mktemp -d "$scratch/lab.XXXXXX")"
    "$ICHOR" lab serve -o json --port 0 --factory-port 0 --proxy-port 0 --state lab.json "${options[@]}" "$@" > lab.out 2> lab.err &
    lab=$!
    for _ in $(seq 300); do jq -e .pve lab.out > /dev/null 2>&1 && break; sleep 0.1; done
    ICHOR_PVE_TOKEN=$(jq -er .pve.token lab.out) || { echo "bench: the lab does not open" >&2; exit 1; }
    export ICHOR_PVE_TOKEN
}

# leave: ends the lab.
leave() {
    kill "$lab"
    wait "$lab" 2> /dev/null || true
    lab=""
}

# inventory CONTROL_PLANES WORKERS [NAME NETWORK]: writes one, with new secrets.
inventory() {
    jq -r --arg cps "$1" --arg workers "$2" --arg name "${3:-bench}" --arg net "${4:-127.70}" '"cluster: {name: \($name), talos: v1.13.9, kubernetes: v1.36.3}
proxmox: {endpoint: \"\(.pve.url)\", token: {env: ICHOR_PVE_TOKEN}, tls: {sha256: \"\(.pve.sha256)\"}}
image: {factory: \"\(.factory.url)\"}
network: {cidr: \($net).0.0/16, gateway: \($net).0.1, dns: \($net).0.1}
machines:
  cp: {role: control-plane, count: \($cps), address: \($net).1.1}
  worker: {role: worker, count: \($workers), address: \($net).2.1}"' lab.out > "${3:-ichor}.yaml"
    "$ICHOR" -f "${3:-ichor}.yaml" secrets new > /dev/null 2>&1
}

# measure NAME MACHINES COMMAND...: runs a command, and prints wall seconds, the lab's lower bound, their ratio, calls to
# Proxmox in all and for each machine, and the largest resident size of a process in MiB.
measure() {
    local name=$1 machines=$2 wall kib
    shift 2
    "$ICHOR" lab reset --state lab.json --record
    /usr/bin/time -f '%e %M' -o time "$@" > out 2> err || { tail -20 err >&2; exit 1; }
    read -r wall kib < time
    "$ICHOR" lab state --state lab.json | jq -r --arg wall "$wall" --arg kib "$kib" --arg machines "$machines" --arg name "$name" '
        ([.ground.record.calls[] | select(.server == "pve")] | length) as $calls
        | (.lower_bound.lower_bound_ms / 1000) as $bound | ($wall | tonumber) as $wall
        | [$name, $wall, $bound, (if $bound > 0 then ($wall / $bound * 1000 | round / 1000) else "-" end),
           $calls, ($calls / ($machines | tonumber) * 10 | round / 10), (($kib | tonumber) / 1024 | round)] | @tsv'
}

heading() { printf 'what\twall s\tbound s\tratio\tcalls\tcalls/machine\tMiB\n'; }
