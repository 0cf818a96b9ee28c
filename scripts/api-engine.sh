# For api-judges.sh, api-clients.sh and metrics-judge.sh, which source it: programs in fixed versions in `tools` in the build folder, and an engine with a
# store of its own. Sets `tools`, `binary` and `work`, a folder that is removed at the end.

target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --offline --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
mkdir -p "$target/tools"
# A Python environment has its own place written into it.
tools=$(readlink -f "$target/tools")
binary=$tools/../debug/belfry
[ -x "$binary" ] || { echo "$binary is not there: cargo build --locked -p belfry" >&2; exit 1; }
engine=
work=$(mktemp -d)
end() {
    [ -z "$engine" ] || kill "$engine" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap end EXIT

need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null || { echo "$0 needs $1: install $2 (make setup-servers does)" >&2; exit 1; }
}

# What was installed by FILE is used again; the copy of it is kept when all of it is there.
is_there() { # FOLDER FILE
    cmp -s "$tools/$1/made-from" "$2"
}

# The packages of PLACE/package-lock.json.
install_node_packages() { # FOLDER PLACE
    is_there "$1" "$2/package-lock.json" && return
    need npm npm
    echo "installing the packages of $2 into $tools/$1 (nothing else is changed)"
    rm -rf "${tools:?}/$1"
    mkdir "$tools/$1"
    cp "$2/package.json" "$2/package-lock.json" "$tools/$1/"
    npm ci --prefix "$tools/$1" --ignore-scripts --no-audit --no-fund --silent
    cp "$2/package-lock.json" "$tools/$1/made-from"
}

# The packages of PLACE/requirements.txt.
install_python_packages() { # FOLDER PLACE
    is_there "$1" "$2/requirements.txt" && return
    need /usr/bin/python3 python3-venv
    echo "installing the packages of $2 into $tools/$1 (nothing else is changed)"
    rm -rf "${tools:?}/$1"
    /usr/bin/python3 -m venv "$tools/$1"
    "$tools/$1/bin/pip" install -q --disable-pip-version-check --no-deps -r "$2/requirements.txt"
    cp "$2/requirements.txt" "$tools/$1/made-from"
}

# An engine with an empty store, a channel that sends nothing, one for callbacks to this machine, a key for everything, and what SETTINGS
# say besides. Sets `address`, `key` and `secret`.
start_engine() { # [SETTINGS]
    "$binary" api-key judge --tenant default --scopes send,read,cancel,suppress,operate,metrics >"$work/key"
    key=$(sed -n 's/^# BELFRY_API_KEY=//p' "$work/key")
    secret=whsec_$(head -c 32 /dev/urandom | base64)
    cat >"$work/belfry.toml" <<TOML
[server]
listen = "127.0.0.1:0"
$(grep -v '^#' "$work/key")
[channels.ios]
kind = "dry-run"
[channels.hooks]
kind = "webhook"
secrets = ["$secret"]
allow_http = true
allow_networks = ["127.0.0.1"]
${1:-}
TOML
    mkfifo "$work/ready"
    (cd "$work" && exec "$binary" serve >ready 2>log) &
    engine=$!
    local ready=
    read -r -t 60 ready <"$work/ready" || true
    address=$(sed -n 's/.*"listen":"\([^"]*\)".*/\1/p' <<<"$ready")
    [ -n "$address" ] || { cat "$work/log" >&2; echo "the engine does not start" >&2; exit 1; }
}

# Whatever was sent, the engine works on, its account balances, and it ends in order.
stop_engine() {
    (cd "$work" && BELFRY_API_KEY=$key "$binary" audit) >"$work/audit" || { cat "$work/audit" >&2; exit 1; }
    kill "$engine"
    wait "$engine" || { tail -5 "$work/log" >&2; echo "the engine ended with an error" >&2; exit 1; }
    engine=
    if grep -E 'panicked| ERROR ' "$work/log" >&2; then
        echo "the engine has said that something failed" >&2
        exit 1
    fi
}
