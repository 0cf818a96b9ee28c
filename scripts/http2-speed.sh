#!/usr/bin/env bash
# What a delivery over HTTP/2 costs the sender, and how many a second there are: the channels of FCM, APNs and Web Push, each in turn with
# h2load as its floor, over one thread and over one per core, against one nghttpd that answers at once; with `nginx` APNs alone against
# nginx, which writes each answer by itself. Prints a row of a table for each pair, and for Web Push what the standard's key pair and
# key agreement cost by themselves in the same run.
#   scripts/http2-speed.sh [ROUNDS] [REQUESTS] [nghttpd|nginx]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3} requests=${2:-500000} server=${3:-nghttpd} cores=$(nproc)
for program in "$server" h2load; do
    command -v "$program" >/dev/null || { echo "$program is missing: install nghttp2-server, nghttp2-client, nginx-light" >&2; exit 1; }
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
case $server in
nghttpd) nghttpd -a 127.0.0.1 -n"$cores" -m1000 -d "$work/www" "$port" "$work/tls/leaf-key.pem" "$work/tls/leaf.pem" & ;;
nginx)
    cat >"$work/nginx.conf" <<CONF
daemon off; user root; worker_processes 1; pid $work/nginx.pid; error_log stderr warn;
events { worker_connections 4096; }
http {
    access_log off; keepalive_requests 100000000; http2_max_concurrent_streams 1000;
    client_body_temp_path $work/body; proxy_temp_path $work/proxy; fastcgi_temp_path $work/fastcgi; uwsgi_temp_path $work/uwsgi;
    scgi_temp_path $work/scgi;
    server {
        listen 127.0.0.1:$port ssl http2; ssl_certificate $work/tls/leaf.pem; ssl_certificate_key $work/tls/leaf-key.pem;
        location / { return 200; }
    }
}
CONF
    nginx -c "$work/nginx.conf" -p "$work" & ;;
esac
pids+=($!)
until (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; do kill -0 "${pids[1]}"; done
openssl ecparam -name prime256v1 -genkey -noout 2>/dev/null | openssl pkcs8 -topk8 -nocrypt -out "$work/key.p8"

endpoint=https://127.0.0.1:$port
token=dQw4w9WgXcQ:$(printf '%0130d' 0)
printf '{"message":{"token":"%s","notification":{"title":"%0120d"}}}' "$token" 0 >"$work/fcm.json"
printf '{"aps":{"alert":"%0110d"}}' 0 >"$work/apns.json"
# As long as a message of up to 128 bytes is when it is encrypted.
head -c 231 /dev/urandom >"$work/webpush.bin"

floor() { # THREADS PATH BODY: microseconds of CPU and requests per second
    local user system rate
    local -a headers=(-H "authorization: Bearer $(printf '%0200d' 0)" -H 'content-type: application/json')
    { TIMEFORMAT='%U %S'; time h2load -t"$1" -c$((4 * $1)) -m250 -n "$requests" -d "$3" "${headers[@]}" "$endpoint/$2" >"$work/h2load"; } 2>"$work/time"
    grep -q " $requests succeeded" "$work/h2load" || { echo "h2load: not all of $requests succeeded" >&2; exit 1; }
    read -r user system < <(tail -1 "$work/time")
    rate=$(sed -n 's/^finished in .*, \([0-9]*\)[0-9.]* req\/s.*/\1/p' "$work/h2load")
    awk -v n="$requests" -v rate="$rate" "BEGIN { printf \"%.2f %d\", ($user + $system) * 1e6 / n, rate }"
}

ours() { # THREADS NAME FLAGS...: the same
    local threads=$1 name=$2; shift 2
    "$target/release/examples/${name}_speed" --threads "$threads" --requests "$requests" --endpoint "$endpoint" --ca-file "$work/tls/ca.pem" "$@" \
        >"$work/ours"
    grep -q '^accepted *\([0-9]*\) of \1$' "$work/ours" || { cat "$work/ours" >&2; exit 1; }
    awk '/^CPU/ { cpu = $2 } /^per second/ { rate = $3 } END { print cpu, rate }' "$work/ours"
}

pair() { # NAME PATH BODY FLAGS...
    local name=$1 path=$2 body=$3 threads; shift 3
    for threads in $(printf '%s\n' 1 "$cores" | sort -nu); do
        read -r floor_us floor_rate < <(floor "$threads" "$path" "$body"; echo)
        read -r our_us our_rate < <(ours "$threads" "$name" "$@"; echo)
        awk -v round="$round" -v name="$name" -v threads="$threads" -v a="$floor_us" -v b="$our_us" -v c="$floor_rate" -v d="$our_rate" 'BEGIN {
            printf "| %d | %s | %d | %.2f us | %.2f us | %.2f | %d | %d | %.2f |\n", round, name, threads, a, b, b / a, c, d, d / c
        }'
        sed -n "s/^key exchange */round $round, $threads threads: /p" "$work/ours" >>"$work/notes"
    done
}

echo "| round | channel | threads | h2load, CPU | channel, CPU | ratio | h2load, per second | channel, per second | ratio |"
echo "|---|---|---|---|---|---|---|---|---|"
for round in $(seq "$rounds"); do
    [ "$server" = nginx ] || pair fcm "$path" "$work/fcm.json" --token-uri "https://$tokens/token" --service-account-file "$work/tls/fcm-service-account.json" --body-bytes 320
    pair apns "3/device/$(printf '%064d' 0)" "$work/apns.json" --key-file "$work/key.p8" --body-bytes 130
    # Ten times the work each: a tenth of the requests.
    [ "$server" = nginx ] || requests=$((requests / 10 / 1000 * 1000)) pair webpush push/0 "$work/webpush.bin" --body-bytes 100
    echo "round $round ended at load $(cut -d' ' -f1 /proc/loadavg)" >>"$work/notes"
done
echo
cat "$work/notes"
