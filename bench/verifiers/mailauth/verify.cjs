// Verifies messages with mailauth: prints a line for each signature, with file, domain, algorithm and result.
//
// Usage: verify.cjs MODULES RECORDS FILE...; MODULES is where `npm ci` has put mailauth, RECORDS what `stentor dkim show` prints.

"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { createRequire } = require("node:module");

const [modules, zone, ...files] = process.argv.slice(2);
const { dkimVerify } = createRequire(path.resolve(modules, "package.json"))("mailauth/lib/dkim/verify");

/** Text of each record by its name. */
const records = new Map();
for (const line of fs.readFileSync(zone, "ascii").split("\n")) {
    const [name, value] = line.split(". IN TXT ");
    if (value) {
        records.set(name, Array.from(value.matchAll(/"([^"]*)"/g), (match) => match[1]));
    }
}

async function resolver(name, type) {
    const strings = records.get(name.toLowerCase().replace(/\.$/, ""));
    if (type !== "TXT" || !strings) {
        throw Object.assign(new Error(`no record of ${name}`), { code: "ENOTFOUND" });
    }
    return [strings];
}

async function main() {
    for (const file of files) {
        const { results } = await dkimVerify(fs.readFileSync(file), { resolver, minBitLength: 2048 });
        for (const { signingDomain, algo, status } of results) {
            const result = status.result === "pass" ? "pass" : `${status.result} ${status.comment || ""}`;
            console.log(`${file} ${signingDomain || "-"} ${algo || "-"} ${result}`);
        }
    }
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
