# A reader that we did not write opens the cidata volumes that machines boot with.

# need_pycdlib: prints the path of a Python that has it.
need_pycdlib() {
    local wanted=$HERE/cidata/requirements.txt folder
    need_program python3
    folder=$CACHE/pycdlib-$({ python3 --version && cat "$wanted"; } | sha256sum | cut -c 1-12)
    if [ ! -e "$folder/complete" ]; then
        mkdir -p "$CACHE"
        echo "installing pycdlib" >&4
        python3 -m venv "$folder" >venv.log 2>&1 || skip "python3 cannot make a virtual environment"
        "$folder/bin/pip" install -q -r "$wanted" >pip.log 2>&1 || skip "pycdlib cannot be had: $(tail -n 1 pip.log)"
        touch "$folder/complete"
    fi
    echo "$folder/bin/python"
}

cidata_real() {
    local python
    python=$(need_pycdlib)
    "$python" "$HERE/cidata/judge.py" cases "${ICHOR_CONFORMANCE_SEED:-1}" >cases.jsonl
    "$python" "$HERE/cidata/judge.py" real cases.jsonl >said.txt || fail "$(head -n 1 said.txt)"
    note "$(cat said.txt)"
}

cidata_volumes() {
    local counterpart python
    counterpart=$(need_counterpart)
    python=$(need_pycdlib)
    "$python" "$HERE/cidata/judge.py" cases "${ICHOR_CONFORMANCE_SEED:-1}" >cases.jsonl
    "$counterpart" volume <cases.jsonl >answers.jsonl
    "$python" "$HERE/cidata/judge.py" compare cases.jsonl answers.jsonl >said.txt || fail "$(head -n 1 said.txt)"
    note "$(cat said.txt)"
}

row cidata real-damage-is-noticed 1 cidata_real
row cidata ichor-volumes-read-back 1 cidata_volumes
