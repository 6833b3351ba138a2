# A client that may create, read and list on MinIO, and not delete. MinIO takes no condition on If-None-Match (docs/guide/storage.md, "Clients that may
# only create"), so such a client can replace objects: the bucket keeps versions under a retention period, and the operator removes what
# was put over them.

# METHOD PATH [OPTION...]: a request as whoever the variables say.
signed() { python3 "$root/tests/signed.py" "$1" "http://127.0.0.1:$port$2" "${@:3}"; }

between_tags() { sed -n "s:.*<$1>\([^<]*\)</$1>.*:\1:p"; }

append_only() {
    local source=$1 policy='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject","s3:ListBucket"],"Resource":["arn:aws:s3:::kept","arn:aws:s3:::kept/*"]}]}'
    local refused=${policy%]\}},'{"Effect":"Deny","Action":["s3:PutObject"],"Resource":["arn:aws:s3:::kept/*"],"Condition":{"Null":{"s3:if-none-match":"true"}}}]}'
    assume() {
        signed POST / -s sts -H Content-Type:application/x-www-form-urlencoded -d "$(python3 -c \
            'import sys, urllib.parse; print(urllib.parse.urlencode(dict(Action="AssumeRole", Version="2011-06-15", DurationSeconds=3600, Policy=sys.argv[1])))' "$1")"
    }
    signed PUT /kept -H x-amz-bucket-object-lock-enabled:true > "$work/answer"
    local rule='<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>'
    signed PUT '/kept?object-lock=' -H "Content-MD5:$(printf %s "$rule" | openssl md5 -binary | base64)" -d "$rule" > "$work/answer"
    # The day this is accepted, the page can say so.
    assume "$refused" > "$work/answer" && fail "MinIO takes a condition on If-None-Match: docs/guide/storage.md says that it does not"
    grep -q "invalid condition key" "$work/answer" || fail "$(cat "$work/answer")"
    local answer; answer=$(assume "$policy")
    local -x LARDER_REPOSITORY=s3:http://127.0.0.1:$port/kept/repository
    "$larder" -q init --insecure-kdf
    as_client() {
        AWS_ACCESS_KEY_ID=$(between_tags AccessKeyId <<< "$answer") AWS_SECRET_ACCESS_KEY=$(between_tags SecretAccessKey <<< "$answer") \
            AWS_SESSION_TOKEN=$(between_tags SessionToken <<< "$answer") "$@"
    }
    as_client "$larder" -q backup --series kept "$source"
    echo more > "$source/more"
    as_client "$larder" -q backup --series kept "$source"
    as_client "$larder" -q forget --keep-last 1 > "$work/answer"
    as_client "$larder" -q check --read-data
    as_client "$larder" -q restore latest --target "$work/of-client"
    local code=0
    as_client "$larder" -q optimize 2> "$work/error" || code=$?
    [ $code -eq 14 ] || fail "a pass that may not delete ended with $code instead of 14: $(cat "$work/error")"
    # Whoever took it over deletes nothing, and puts something else over every container.
    local names name; names=$(signed GET '/kept?list-type=2&prefix=repository/data/' | grep -o '<Key>[^<]*' | cut -c6-)
    [ -n "$names" ] || fail "no containers"
    for name in $names; do
        ! as_client signed DELETE "/kept/$name" > "$work/answer" 2>&1 || fail "a client deleted $name"
        as_client signed PUT "/kept/$name" -d garbage > "$work/answer"
    done
    code=0
    "$larder" -q check > "$work/answer" 2> "$work/error" || code=$?
    [ $code -eq 13 ] || fail "check of replaced containers ended with $code"
    # The operator removes the newer versions, and nothing is lost.
    for name in $names; do
        local newest; newest=$(signed GET "/kept?prefix=$name&versions=" | tr -d '\n' | sed 's:</Version>:&\n:g' | grep '<IsLatest>true' | between_tags VersionId)
        signed DELETE "/kept/$name?versionId=$newest" -H x-amz-bypass-governance-retention:true > "$work/answer"
    done
    as_client "$larder" -q check --read-data
    "$larder" -q optimize --json > "$work/answer"
    grep -q '"keeps_versions":true' "$work/answer" || fail "a pass does not know that the bucket keeps versions: $(cat "$work/answer")"
    as_client "$larder" -q check --read-data
    echo "append-only: a client replaced everything, and nothing was lost"
}
