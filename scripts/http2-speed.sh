#!/usr/bin/env bash
# What a delivery over HTTP/2 costs the sender: the channels of APNs, FCM and Web Push, and h2load as the floor, in turn against one
# nghttpd that answers at once. Prints requests per second and CPU per request.
#   scripts/http2-speed.sh [ROUNDS] [REQUESTS]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3} requests=${2:-500000}
for program in nghttpd h2load; do
    command -v "$program" >/dev/null || { echo "$program is missing: install nghttp2-server and nghttp2-client" >&2; exit 1; }
done
cargo build -q --release --locked -p channel --example apns_speed --example fcm_speed --example webpush_speed
cargo build -q --locked -p provider-sim --example provider-sim
target=${CARGO_TARGET_DIR:-target}

work=$(mktemp -d)
pids=()
finish() { kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"; }
trap finish EXIT

# The simulator lends its certificates and gives access tokens; messages go to nghttpd.
"$target/debug/examples/provider-sim" --apns 127.0.0.1:0 --webhook 127.0.0.1:0 --fcm 127.0.0.1:0 \
    --journal "$work/journal" --tls-dir "$work/tls" >"$work/ready" &
pids+=($!)
until [ -s "$work/ready" ]; do kill -0 "${pids[0]}"; done
tokens=$(sed 's/.*"fcm":"\([^"]*\)".*/\1/' "$work/ready")

path=v1/projects/provider-sim/messages:send
mkdir -p "$work/www/3/device" "$work/www/push" "$work/www/${path%/*}"
printf '{\n  "name": "projects/provider-sim/messages/0:1732161600123456%%31bd1c9631bd1c96"\n}\n' >"$work/www/$path"
for number in $(seq 0 999); do
    : >"$work/www/3/device/$(printf '%064d' "$number")"
    : >"$work/www/push/$number"
done
port=$((20000 + RANDOM % 10000))
nghttpd -a 127.0.0.1 -n1 -m1000 -d "$work/www" "$port" "$work/tls/leaf-key.pem" "$work/tls/leaf.pem" &
pids+=($!)
until (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; do kill -0 "${pids[1]}"; done
openssl ecparam -name prime256v1 -genkey -noout 2>/dev/null | openssl pkcs8 -topk8 -nocrypt -out "$work/key.p8"

endpoint=https://127.0.0.1:$port
token=dQw4w9WgXcQ:$(printf '%0130d' 0)
printf '{"message":{"token":"%s","notification":{"title":"%0120d"}}}' "$token" 0 >"$work/fcm.json"
printf '{"aps":{"alert":"%0110d"}}' 0 >"$work/apns.json"
# As long as a message of up to 128 bytes is when it is encrypted.
head -c 231 /dev/urandom >"$work/webpush.bin"

floor() { # NAME PATH BODY
    local user system
    local -a headers=(-H "authorization: Bearer $(printf '%0200d' 0)" -H 'content-type: application/json')
    exec 3>&1
    { TIMEFORMAT='%U %S'; time h2load -t1 -c4 -m250 -n "$requests" -d "$3" "${headers[@]}" "$endpoint/$2" >"$work/h2load"; } 2>"$work/time"
    read -r user system < <(tail -1 "$work/time")
    echo "h2load $1: $(sed -n 's/^finished in .*, \([0-9.]*\) req\/s.*/\1/p' "$work/h2load") per second," \
        "$(awk -v n="$requests" "BEGIN { printf \"%.2f\", ($user + $system) * 1e6 / n }") us of CPU;" \
        "$(grep -o '[0-9]* succeeded' "$work/h2load")"
}

ours() { # NAME, FLAGS...
    local name=$1; shift
    "$target/release/examples/${name}_speed" --requests "$requests" --endpoint "$endpoint" --ca-file "$work/tls/ca.pem" "$@" \
        | awk -v name="$name" '{ sub(/^[a-zA-Z -]*  +/, ""); line = line (line ? "; " : "") $0 } END { print name ": " line }'
}

for round in $(seq "$rounds"); do
    echo "round $round, load $(cut -d' ' -f1 /proc/loadavg)"
    floor fcm "$path" "$work/fcm.json"
    ours fcm --token-uri "https://$tokens/token" --service-account-file "$work/tls/fcm-service-account.json" --body-bytes 320
    floor apns "3/device/$(printf '%064d' 0)" "$work/apns.json"
    ours apns --key-file "$work/key.p8" --body-bytes 130
    floor webpush push/0 "$work/webpush.bin"
    # Ten times the work each: a tenth of the requests.
    requests=$((requests / 10 / 1000 * 1000)) ours webpush --body-bytes 100
done
