"""Fake secrets of every kind, as logs hold them, and texts that only look like secrets.

Tokens are assembled when the tests run, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Mapping

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
ALNUM, HEX = UPPER + LOWER + DIGITS, DIGITS + "abcdef"


def some(count: int, chars: str = ALNUM, *, seed: str = "") -> str:
    """Return *count* characters, the same each time; with a digit and both letter cases, if *chars* has them."""
    rng = random.Random(f"{count} {chars} {seed}")
    while True:
        found = "".join(rng.choices(chars, k=count))
        if count < 8 or all(set(found) & set(kind) for kind in (UPPER, LOWER, DIGITS) if set(kind) <= set(chars)):
            return found


SLACK = "slack" + ".com"
GITHUB = "github" + "_pat_"
WORD = "Hunter2" + "x9Qz"
SPACED = "correct horse" + " battery staple"
PEM_BODY = "\n".join(some(64, ALNUM + "+/", seed=str(line)) for line in range(6))
JWT = f"eyJ{some(20)}.eyJ{some(30)}.{some(43)}"
ACCOUNT_KEY = some(86, ALNUM + "+/") + "=="
BASIC = base64.b64encode(b"ann:Hunter2x9Qz").decode()


def _pem(kind: str) -> str:
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{PEM_BODY}\n-----END {kind}PRIVATE KEY-----"


def _json_in(depth: int) -> str:
    text = json.dumps({"password": 'Hun"ter2' + "x9Qz", "user": "ann"})
    for _ in range(depth):
        text = json.dumps({"message": text})
    return text


#: The text by kind, and the part of it that must not be shown.
NAMED: Mapping[str, tuple[str, str]] = {
    "env": (f"DB_PASSWORD={WORD} failed", WORD),
    "lower": (f"password={WORD}", WORD),
    "no-underscore": (f"PGPASSWORD={WORD} psql", WORD),
    "key-part": (f"MY_SIGNING_KEY={WORD}", WORD),
    "bare-upper-key": (f"KEY={WORD}", WORD),
    "key-in-middle": (f"ENCRYPTION_KEY_V2={WORD}", WORD),
    "secret-part": (f"CLIENT_SECRET_VALUE={WORD}", WORD),
    "token-part": (f"MY_TOKEN_PROD={WORD}", WORD),
    "pass-part": (f"SMTP_PASS={WORD}", WORD),
    "pwd-part": (f"USER_PWD={WORD}", WORD),
    "cookie-part": (f"SESSION_COOKIE={WORD}", WORD),
    "credential-part": (f"GIT_CREDENTIALS={WORD}", WORD),
    "auth-part": (f"REDIS_AUTH={WORD}", WORD),
    "camel": (f"apiKey: {WORD}", WORD),
    "camel-secret": (f"clientSecret={WORD}", WORD),
    "dotted": (f"spring.datasource.password={WORD}", WORD),
    "hadoop-key": (f"fs.azure.account.key.acct.dfs.core.windows.net={WORD}", WORD),
    "dashes": (f"x-api-key: {WORD}", WORD),
    "two-words": (f"using api key: {WORD}", WORD),
    "spaces-around": (f"password = {WORD}", WORD),
    "walrus": (f"private_key := {WORD}", WORD),
    "arrow": (f"'password' => '{WORD}'", WORD),
    "ruby": (f':password => "{WORD}"', WORD),
    "compare": (f"assert password == '{WORD}'", WORD),
    "annotated": (f'password: str = "{WORD}"', WORD),
    "subscript": (f'os.environ["API_TOKEN"] = "{WORD}"', WORD),
    "quoted": (f'password="{SPACED}"', SPACED),
    "quoted-escapes": (f'password="Hun\\"ter2 {WORD}"', f"ter2 {WORD}"),
    "single-quoted": (f"password='{SPACED}'", SPACED),
    "doubled-quotes": (f"password='Hun''{WORD}'", WORD),
    "triple-quoted": (f'password="""one\n{WORD}"""', WORD),
    "typographic": (f"password=\u201c{SPACED}\u201d", SPACED),
    "backquoted": (f"password=`{SPACED}`", SPACED),
    "comma-within": ("password=Hunter2,x9Qz5", "Hunter2,x9Qz5"),
    "bracket-within": ("password=Hunter2)x9Qz5", "Hunter2)x9Qz5"),
    "ampersand-within": ("password=Hunter2&x9Qz5", "Hunter2&x9Qz5"),
    "quote-within": ("password=Hun'ter2x9Qz", "ter2x9Qz"),
    "phrase": (f"password: {SPACED}", SPACED),
    "json": (json.dumps({"user": "ann", "password": WORD}), WORD),
    "json-number": ('{"password": 9182736455}', "9182736455"),
    "json-list": (json.dumps({"tokens": [WORD, "b"]}), WORD),
    "json-object": (json.dumps({"credentials": {"value": WORD}}), WORD),
    "json-in-json": (_json_in(1), "ter2x9Qz"),
    "json-in-json-in-json": (_json_in(2), "ter2x9Qz"),
    "json-pretty": (json.dumps({"secret_key": WORD}, indent=4), WORD),
    "name-and-value": (json.dumps({"name": "DB_PASSWORD", "value": WORD}), WORD),
    "yaml": (f"db:\n  password: {WORD}\n  user: ann", WORD),
    "yaml-list": (f"- name: API_TOKEN\n  value: {WORD}", WORD),
    "yaml-block": (f"private_key: |\n  one{WORD}\n  two{WORD}\nuser: ann", WORD),
    "bytes": (f"password=b'{WORD}'", WORD),
    "bytes-pair": (f"(b'Authorization', b'{WORD}')", WORD),
    "tuple": (f"('password', '{WORD}')", WORD),
    "list-pair": (f'["api_key", "{WORD}"]', WORD),
    "call": (f'password=SecretStr("{SPACED}")', SPACED),
    "xml": (f"<password>{WORD}</password>", WORD),
    "xml-namespace": (f"<wsse:Password Type='text'>{WORD}</wsse:Password>", WORD),
    "xml-attribute": (f'<user password="{WORD}"/>', WORD),
    "xml-property": (f"<name>fs.s3a.secret.key</name><value>{WORD}</value>", WORD),
    "xml-cdata": (f"<token><![CDATA[{WORD}]]></token>", WORD),
    "html-entities": (f"&quot;password&quot;: &quot;{WORD}&quot;", WORD),
    "url-encoded": (f"body=password%3D{WORD}", WORD),
    "option": (f"run --password {WORD}", WORD),
    "option-equals": (f"run --db-password={WORD}", WORD),
    "option-quoted": (f'run --password "{SPACED}"', SPACED),
    "option-list": (f"['run', '--password', '{WORD}']", WORD),
    "option-dash": (f"keytool -storepass {WORD}", WORD),
    "account-key": (f"AccountName=a;AccountKey={WORD}==;EndpointSuffix=x", WORD),
    "connection-string": (f"Server=db;User Id=ann;Password={SPACED};Database=x", SPACED),
    "odbc": (f"DSN=x;UID=ann;PWD={WORD}", WORD),
    "odbc-braces": (f"DRIVER=x;PWD={{Hunter2;{WORD}}}", WORD),
    "dsn": (f"host=db user=ann password='{SPACED}' dbname=x", SPACED),
    "netrc": (f"machine db.example login ann password {WORD}", WORD),
    "sql": (f"CREATE USER ann IDENTIFIED BY '{WORD}'", WORD),
    "sql-password": (f"ALTER ROLE ann WITH PASSWORD '{WORD}'", WORD),
    "colored": (f"password=\x1b[1;31m{WORD}\x1b[0m", WORD),
    "colored-name": (f"\x1b[36mpass\x1b[35mword\x1b[0m=\x1b[35m{WORD}\x1b[0m", WORD),
    "colored-value": ("password=Hunter2\x1b[0mx9Qz", "x9Qz"),
    "zero-width": (f"pass\u200bword={WORD}", WORD),
    "no-break-space": (f"password\u00a0=\u00a0{WORD}", WORD),
    "half-hidden": (f"password=[hidden]{WORD}", WORD),
}  # fmt: skip

PLACED: Mapping[str, tuple[str, str]] = {
    "cookie": (f"Cookie: theme=dark; sid={WORD}; x=1", WORD),
    "set-cookie": (f"Set-Cookie: sid={WORD}; Path=/", WORD),
    "session-id": (f"JSESSIONID={WORD}", WORD),
    "bearer": (f"got Bearer {WORD} back", WORD),
    "authorization": (f"Authorization: Bearer {WORD}", WORD),
    "authorization-basic": (f"Authorization: Basic {BASIC}", BASIC),
    "authorization-digest": (f'Authorization: Digest username="ann", response="{WORD}"', WORD),
    "authorization-other": (f"Authorization: Frob2 {WORD}", WORD),
    "authorization-json": (f'{{"Authorization": "Frob2 {WORD}"}}', WORD),
    "proxy-authorization": (f"Proxy-Authorization: NTLM {WORD}", WORD),
    "bare-basic": (f"sent Basic {BASIC}", BASIC),
    "curl-header": (f"curl -H 'Authorization: token {WORD}' https://x", WORD),
    "request-bytes": (f"b'GET / HTTP/1.1\\r\\nAuthorization: Frob2 {WORD}\\r\\nHost: x'", WORD),
    "url-password": (f"postgres://ann:{WORD}@db:5432/x", WORD),
    "url-password-slash": ("postgres://ann:Hunt/er2x9Qz@db:5432/x", "Hunt/er2x9Qz"),
    "url-password-at": ("postgres://ann:Hunt@er2x9Qz@db:5432/x", "Hunt@er2x9Qz"),
    "url-password-hash": ("redis://:Hunt#er2x9Qz@cache:6379/0", "Hunt#er2x9Qz"),
    "url-token-user": (f"https://{some(32, HEX)}@o1.ingest.sentry.example/2", some(32, HEX)),
    "url-token-user-empty": (f"https://{some(20)}:@api.example/v1", some(20)),
    "url-token-user-oauth": (f"https://{some(24)}:x-oauth-basic@git.example/a", some(24)),
    "url-query": (f"https://x.example/a?anything={WORD}&b=2", WORD),
    "url-query-second": (f"https://x.example/a?b=2&whatever={WORD}", WORD),
    "url-path-query": (f"GET /v1/a?code={WORD} HTTP/1.1", WORD),
    "url-fragment": (f"https://x.example/#access_token={WORD}", WORD),
    "jdbc": (f"jdbc:mysql://db/x?user=ann&password={WORD}", WORD),
    "jdbc-semicolon": (f"jdbc:sqlserver://db;user=ann;password={WORD}", WORD),
    "sas": (f"https://a.blob.example/c/b?sv=2022-11-02&sig={WORD}%3D", WORD),
    "shared-access-signature": (f"SharedAccessSignature={WORD}", WORD),
    "presigned": (f"https://b.s3.example/o?X-Amz-Signature={some(64, HEX)}", some(64, HEX)),
    "slack-webhook": (f"https://hooks.{SLACK}/services/T0000/B0000/{some(24)}", some(24)),
    "discord-webhook": (f"https://discord.example/api/webhooks/12345/{some(60)}", some(60)),
    "curl-user": (f"curl -s -u ann:{WORD} https://x", WORD),
    "curl-user-long": (f"curl --user ann:{WORD} https://x", WORD),
    "curl-user-list": (f"['curl', '-u', 'ann:{WORD}']", WORD),
    "mysql": (f"mysql -u root -p{WORD} db", WORD),
    "mysqldump": (f"mysqldump -hdb -p'{SPACED}' db", SPACED),
    "sshpass": (f"sshpass -p {WORD} ssh ann@host", WORD),
    "sshpass-joined": (f"sshpass -p{WORD} ssh ann@host", WORD),
    "docker-login": (f"docker login -u ann -p {WORD} registry.example", WORD),
    "redis-cli": (f"redis-cli -h cache -a {WORD} ping", WORD),
    "ldapsearch": (f"ldapsearch -D cn=x -w {WORD}", WORD),
    "smbclient": (f"smbclient //h/s -U ann%{WORD}", WORD),
    "zip": (f"unzip -P {WORD} a.zip", WORD),
    "openssl": (f"openssl rsa -passin pass:{WORD}", WORD),
    "pem-rsa": (_pem("RSA "), PEM_BODY),
    "pem": (_pem(""), PEM_BODY),
    "pem-openssh": (_pem("OPENSSH "), PEM_BODY),
    "pem-one-line": (_pem("").replace("\n", "\\n"), PEM_BODY.replace("\n", "\\n")),
    "pem-gcp-json": (json.dumps({"private_key": _pem("")}), PEM_BODY.replace("\n", "\\n")),
    "pem-cut-end": (_pem("RSA ")[:300], PEM_BODY[:250]),
    "pem-cut-start": ("its end\n" + _pem("RSA ")[97:], PEM_BODY[65:]),
    "putty": (f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 6\n{PEM_BODY}", PEM_BODY),
}  # fmt: skip


def _token(prefix: str, body: str) -> tuple[str, str]:
    token = (prefix + body).replace("|", "")
    return f"got {token} from it", token


LOOKS: Mapping[str, tuple[str, str]] = {
    "jwt": (f"got {JWT} back", JWT),
    "aws-id": _token("AK|IA", some(16, UPPER + DIGITS)),
    "aws-temporary-id": _token("AS|IA", some(16, UPPER + DIGITS)),
    "aws-pair": ("AK" + f"IA{some(16, UPPER + DIGITS)}: {some(40, ALNUM + '+/')}", some(40, ALNUM + "+/")),
    "azure-storage-key": (f"got {ACCOUNT_KEY} back", ACCOUNT_KEY),
    "azure-client-secret": _token(f"{some(3)}8Q|~", some(34)),
    "slack-bot": _token("xo|xb-", f"{some(12, DIGITS)}-{some(24)}"),
    "slack-user": _token("xo|xp-", f"{some(12, DIGITS)}-{some(24)}"),
    "slack-app": _token("xa|pp-", f"1-A1-{some(12, DIGITS)}-{some(40, HEX)}"),
    "gitlab": _token("gl|pat-", some(20)),
    "gitlab-deploy": _token("gl|dt-", some(20)),
    "gitlab-runner": _token("gl|rt-", some(20)),
    "github": _token("gh|p_", some(36)),
    "github-oauth": _token("gh|o_", some(36)),
    "github-app": _token("gh|s_", some(36)),
    "github-fine": (f"got {GITHUB}{some(22)}_{some(59)} from it", f"{some(22)}_{some(59)}"),
    "pypi": _token("py|pi-AgE", "IcHlwaS5vcmc" + some(60)),
    "npm": _token("np|m_", some(36)),
    "rubygems": _token("ruby|gems_", some(48, HEX)),
    "docker": _token("dckr|_pat_", some(27)),
    "stripe": _token("sk|_live_", some(24)),
    "stripe-restricted": _token("rk|_live_", some(24)),
    "stripe-webhook": _token("wh|sec_", some(32)),
    "openai": _token("sk|-", some(48)),
    "openai-project": _token("sk|-proj-", some(48)),
    "anthropic": _token("sk|-ant-api03-", some(80)),
    "hugging-face": _token("h|f_", some(34)),
    "sendgrid": _token("S|G.", f"{some(22)}.{some(43)}"),
    "digitalocean": _token("do|p_v1_", some(64, HEX)),
    "vault": _token("hv|s.", some(90)),
    "vault-old": _token("s|.", some(24)),
    "databricks": _token("da|pi", some(32, HEX)),
    "google-api": _token("AI|za", some(35)),
    "google-oauth": _token("ya|29.", some(60)),
    "google-client": _token("GOC|SPX-", some(28)),
    "twilio": (f"TWILIO_AUTH_TOKEN={some(32, HEX)}", some(32, HEX)),
    "twilio-key": _token("S|K", some(32, HEX)),
    "telegram": _token(some(10, "123456789") + ":A|A", some(33)),
    "discord": _token("M", f"{some(23)}.{some(6)}.{some(38)}"),
    "mailgun": _token("ke|y-", some(32, HEX)),
    "mailchimp": _token(some(32, HEX), "-us|12"),
    "square": _token("sq|0atp-", some(22)),
    "shopify": _token("shp|at_", some(32, HEX)),
    "dropbox": _token("s|l.", some(130)),
    "atlassian": _token("ATA|TT3", some(180)),
    "heroku": _token("HR|KU-", f"{some(8, HEX)}-{some(4, HEX)}-{some(4, HEX)}-{some(12, HEX)}"),
    "fastly": (f"Fastly-Key: {some(32)}", some(32)),
    "postman": _token("PM|AK-", f"{some(24, HEX)}-{some(34, HEX)}"),
    "linear": _token("lin|_api_", some(40)),
    "doppler": _token("dp|.pt.", some(43)),
    "grafana": _token("gl|sa_", f"{some(32)}_{some(8, HEX)}"),
    "new-relic": _token("NR|AK-", some(27, UPPER + DIGITS)),
    "new-relic-licence": _token(some(36, HEX), "NR|AL"),
    "terraform": _token(some(14), f".atlasv1.{some(67)}"),
    "age": _token("AGE-SECRET|-KEY-1", some(58, UPPER + DIGITS)),
    "tailscale": _token("ts|key-auth-", f"{some(12)}-{some(32)}"),
    "replicate": _token("r|8_", some(37)),
    "groq": _token("gs|k_", some(52)),
    "sentry": _token("snt|rys_", some(60)),
    "notion": _token("nt|n_", some(46)),
    "figma": _token("fi|gd_", some(40)),
    "prefect": _token("pn|u_", some(36)),
    "password-hash": _token("$2|b$12$", some(53)),
}  # fmt: skip

KINDS: Mapping[str, tuple[str, str]] = {**NAMED, **PLACED, **LOOKS}

#: Texts that only look like secrets and must stay unchanged.
HARMLESS = (
    "lowpass: pieces of 3032 x 3032 float64",
    "Key:       tokenize-5b1c: failed",
    "Key: inc-3",
    "Key:       ('read-parquet-token-1a2b3c4d5e6f', 0)",
    "key=('x', 0)",
    "key=inc-123",
    "key='sum-tree-1f2e3d4c5b6a7980'",
    "keyword=value",
    "Task passes: 12, keyword: value",
    "monkey=3",
    "passed=12, failed=3",
    "bypass=true compass=north",
    "author=Ann author: Ann",
    "authenticated=True",
    "tokenize(x)",
    "tokens: 4096, max_tokens=512",
    "token_type=bearer",
    "secretName: dask-creds",
    "password_file=/run/secrets/db",
    "/run/secrets/token: No such file or directory",
    "/home/dask/credentials.json: Permission denied",
    "KilledWorker: Attempted to run task ('read-parquet-token', 3) on 4 different workers",
    "KilledWorker: Attempted to run task 'make-token-9c1f0a2b' on 4 different workers",
    "Remove worker addr: tcp://10.0.0.4:4002 name: w (stimulus_id='handle-worker-cleanup-1.0')",
    "Worker key was lost; worker key: inc-3",
    "task_key=inc-3 sort_key=name primary_key=id partition_key=day",
    "KeyError: 'password'",
    "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
    "google.auth.exceptions.DefaultCredentialsError: Could not determine credentials",
    "INFO:botocore.credentials:Found credentials in environment variables.",
    "    connect(user, password=password)",
    "    self.token = token",
    "    token = tokenize(df, chunks)",
    "    password = os.environ['DB_PASSWORD']",
    "    password = getpass.getpass()",
    "    def login(user: str, password: str, token: str | None = None):",
    "    if password is None:",
    '  File "/srv/app/password.py", line 3, in get_password',
    "auth.py:123: in authenticate",
    "Access denied for user 'root'@'localhost' (using password: YES)",
    "password=None token=null secret=''",
    "password=*** token=<redacted> secret=${SECRET}",
    "password=[hidden]",
    "4.13 GiB / 4.00 GiB, limit=4294967296, pid=129",
    "Memory use 3.82 GiB -- Worker memory limit: 4.00 GiB",
    "tcp://10.0.0.4:34937 -> tcp://10.0.0.5:41233",
    "ssh://git@github.example/dask/distributed.git",
    "abfs://container@account.dfs.core.windows.net/data.parquet",
    "s3://bucket/part-?.parquet",
    "https://distributed.dask.org/en/stable/worker-memory.html",
    "wrote to ann@example.org",
    "read-parquet-0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "('shuffle-transfer-0f1e2d3c4b5a69788796a5b4c3d2e1f0', 12)",
    "docker run -p 8080:80 dask/dask",
    "mkdir -p /tmp/dask-worker-space",
    "sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "Unexpected token < in JSON at position 0",
    'MountVolume.SetUp failed for volume "x" : secret "dask-token" not found',
    "public_key=ssh-rsa",
    "Basic configuration of the Bearer of news",
    "second pass: 12 rows",
)
