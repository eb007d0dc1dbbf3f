//! Pebble: a certificate authority for ACME, with a DNS server that resolves every name to
//! 127.0.0.1.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use sluicegate_testkit::port::Port;

use crate::support::process::Process;
use crate::support::{Folder, Run, server, shell};

/// An authority with the ports that it verifies; ends with this value.
pub struct Pebble {
    process: Option<Process>,
    _dns: Process,
    folder: Folder,
    ports: [Port; 4],
    /// Where the authority expects listeners: plain text, and TLS.
    pub http: Port,
    pub tls: Port,
}

impl Pebble {
    /// Starts one whose certificates live so many seconds.
    pub fn start(lifetime_s: u64) -> Self {
        Self::with(lifetime_s, json!({}))
    }

    /// The same with more options.
    pub fn with(lifetime_s: u64, more: Value) -> Self {
        let (folder, ports) = (Folder::new(), [(); 4].map(|()| Port::free()));
        let (http, tls) = (Port::free(), Port::free());
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let mut options = json!({
            "listenAddress": format!("127.0.0.1:{}", ports[0].number()),
            "managementListenAddress": format!("127.0.0.1:{}", ports[1].number()),
            "certificate": folder.file("ca.pem", &own.cert.pem()),
            "privateKey": folder.file("ca.key", &own.signing_key.serialize_pem()),
            "httpPort": http.number(),
            "tlsPort": tls.number(),
            "domainBlocklist": ["blocked.example.com"],
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "", "validityPeriod": lifetime_s } },
        });
        let (options, more) = (options.as_object_mut(), more.as_object().cloned());
        let options = options.map(|options| {
            options.extend(more.unwrap_or_default());
            json!({ "pebble": options })
        });
        folder.file("pebble.json", &options.unwrap().to_string());
        let [dns, management] = [2, 3].map(|at: usize| format!("127.0.0.1:{}", ports[at].number()));
        let mut command = Command::new(server("pebble-challtestsrv"));
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        command.args(["-defaultIPv6", "", "-dnsserver", &dns, "-management", &management]);
        let mut dns = Process::start("pebble-challtestsrv", &mut command);
        dns.says("Starting management server");
        let mut this = Self { process: None, _dns: dns, folder, ports, http, tls };
        this.restart();
        this
    }

    /// Starts it without what it knew: accounts and certificates.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = Command::new(server("pebble"));
        command.envs([
            ("PEBBLE_VA_NOSLEEP", "1"),
            ("PEBBLE_WFE_NONCEREJECT", "0"),
            ("PEBBLE_AUTHZREUSE", "0"),
        ]);
        let config = format!("{}/pebble.json", self.folder.path());
        let dns = format!("127.0.0.1:{}", self.ports[2].number());
        let mut process =
            Process::start("pebble", command.args(["-config", &config, "-dnsserver", &dns]));
        process.says("Listening on");
        self.process = Some(process);
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Options of `acme` for its certificates.
    pub fn acme(&self, domains: &str, state: &Folder, more: &str) -> String {
        let (directory, folder) = (self.ports[0].number(), self.folder.path());
        format!(
            "{{ domains: [{domains}], directory: 'https://127.0.0.1:{directory}/dir', directory_ca: {folder}/ca.pem, state: {}/state, retry: 200ms{more} }}",
            state.path()
        )
    }

    /// A gateway's file with its listeners.
    pub fn file(&self, domains: &str, state: &Folder, more: &str) -> String {
        let text = format!(
            "listen:\n  - {{ address: '127.0.0.1:{}', redirect_to_https: true }}\n  - {{ address: '127.0.0.1:{}', tls: {{ acme: {} }} }}\nroutes: [{{ path: /*, respond: {{ status: 200, body: served }} }}]\n",
            self.http.number(),
            self.tls.number(),
            self.acme(domains, state, more)
        );
        state.file("gateway.yaml", &text)
    }

    /// Sets the answer to requests for renewal information of a certificate.
    pub fn set_renewal_window(&self, certificate: &str, window: [&str; 2]) {
        let window = json!({ "suggestedWindow": { "start": window[0], "end": window[1] } });
        let body = json!({ "certificate": certificate, "ariResponse": window.to_string() });
        let body = self.folder.file("window.json", &body.to_string());
        let port = self.ports[1].number();
        let line = format!(
            "curl -sSk --fail-with-body -d @{body} https://127.0.0.1:{port}/set-renewal-info/"
        );
        let run = shell(&line, self.folder.path().as_ref());
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    }

    /// Requests a page with curl, which verifies the certificate by the authority's root.
    pub fn curl(&self, name: &str, port: u16, more: &str) -> Run {
        let (root, management) =
            (format!("{}/root.pem", self.folder.path()), self.ports[1].number());
        let line = format!(
            "curl -sSk -o {root} https://127.0.0.1:{management}/roots/0 && \
             curl -sS --cacert {root} --resolve {name}:{port}:127.0.0.1 {more} https://{name}:{port}/"
        );
        shell(&line, self.folder.path().as_ref())
    }
}

/// The certificate that a client gets for a name, from openssl; empty if there is none.
pub fn presented(port: u16, name: &str, more: &str) -> String {
    let line = format!(
        "openssl s_client -connect 127.0.0.1:{port} -servername {name} {more} </dev/null 2>&1 | openssl x509 2>/dev/null"
    );
    shell(&line, ".".as_ref()).stdout
}

/// The only file of a kind in the state.
pub fn state_file(state: &Folder, name: &str) -> String {
    let authority = fs::read_dir(format!("{}/state", state.path())).unwrap().next();
    let path = authority.unwrap().unwrap().path().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
