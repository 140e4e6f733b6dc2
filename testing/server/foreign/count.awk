# Counts what a log says, knowing nothing of Stentor: `awk -v mta=postfix -f count.awk LOG`. A host counts once per hour,
# message and outcome; where none was reached its recipients' domains do.

function domain(address) { sub(/^.*@/, "", address); return address }
function pair(kind, hour, id, host) { if (!((kind, hour, id, host) in seen)) { seen[kind, hour, id, host] = 1; hosts[kind]++ } }
function field(name,    text) {
    if (!match($0, ", " name "=")) return ""
    text = substr($0, RSTART + length(name) + 3)
    sub(/, .*/, "", text)
    return text
}

mta == "postfix" {
    id = $6; sub(/:$/, "", id); hour = $1 $2 substr($3, 1, 2)
    if ($5 ~ /\/qmgr\[/ && $7 ~ /^from=/ && /nrcpt=/ && !(id in posted)) { posted[id] = 1; posts++ }
    if ($7 ~ /^to=</) {
        to = $7; sub(/^to=</, "", to); sub(/>,$/, "", to)
        host = field("relay"); sub(/\[.*/, "", host); if (host == "none") host = domain(to)
        status = $0; sub(/.* status=/, "", status); sub(/ .*/, "", status)
        delete waiting[id, to]
        if (status == "sent") { delivered++; pair("delivered", hour, id, host) }
        if (status == "deferred") { failed++; deferred++; waiting[id, to] = id; pair("failed", hour, id, host) }
        if (status == "bounced") { failed++; bounced++; pair("failed", hour, id, host) }
    }
    if (/status=expired, returned to sender/) for (key in waiting) if (waiting[key] == id) { bounced++; delete waiting[key] }
}

mta == "sendmail" {
    id = $6; sub(/:$/, "", id); hour = $1 $2 substr($3, 1, 2)
    if ($7 ~ /^from=/ && field("nrcpts") > 0) posts++
    if ($7 ~ /^to=/) {
        list = $7; sub(/^to=/, "", list); sub(/,$/, "", list)
        count = split(list, rcpt, ",")
        host = field("relay"); sub(/^.*\[/, "", host); sub(/\].*/, "", host)
        stat = $0; sub(/.*, stat=/, "", stat)
        if (stat ~ /^queued/) next
        for (n = 1; n <= count; n++) delete waiting[id, rcpt[n]]
        if (stat ~ /^Sent/) { delivered += count; pair("delivered", hour, id, host) }
        else {
            failed += count; pair("failed", hour, id, host)
            if (stat ~ /^Deferred/) { deferred += count; for (n = 1; n <= count; n++) waiting[id, rcpt[n]] = id }
            else bounced += count
        }
    }
    if (/: Cannot send message for /) for (key in waiting) if (waiting[key] == id) { bounced++; delete waiting[key] }
}

mta == "exim" {
    id = $3; hour = $1 substr($2, 1, 2)
    host = domain($5)
    if (match($0, / H=[^ ]+/)) host = substr($0, RSTART + 3, RLENGTH - 3)
    sub(/:$/, "", host)
    if ($4 == "<=") posts++
    if ($4 == "=>" || $4 == "->") { delivered++; pair("delivered", hour, id, host) }
    if ($4 == "==") { failed++; deferred++; pair("failed", hour, id, host) }
    if ($4 == "**") {
        bounced++
        if (!/retry timeout exceeded/) { failed++; pair("failed", hour, id, host) }
    }
}

END {
    printf "{\"posts\":%d,\"delivered\":%d,\"delivered_hosts\":%d,", posts, delivered, hosts["delivered"]
    printf "\"failed\":%d,\"failed_hosts\":%d,\"deferred\":%d,\"bounced\":%d}\n", failed, hosts["failed"], deferred, bounced
}
