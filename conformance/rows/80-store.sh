# A store in a real S3 server, which checks signatures and honours conditions.

need_versitygw() {
    need_tool versitygw "$HERE/store" go.mod "" github.com/versity/versitygw/cmd/versitygw
}

# judge_store PROGRAM WORDS...: lets a program of ours judge ichor with the server.
judge_store() {
    local program=$1 ichor server
    shift
    need_program python3
    ichor=$(need_verb log verify)
    server=$(need_versitygw)
    mkdir judged
    python3 -B "$HERE/store/$program" "$@" "$ichor" "$server" "$REPOSITORY/examples/minimal/ichor.yaml" "$WORK/judged" >said.txt ||
        fail "$(head -n 1 said.txt)"
    note "$(cat said.txt)"
}

store_fight() { judge_store fight.py 200; }

# Two who have nothing in common but the bucket make one cluster.
store_two_machines() { judge_store two.py; }

row store fight-for-the-lock 1 store_fight
row store two-machines 1 store_two_machines
