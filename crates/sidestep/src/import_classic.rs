//! `import-classic`: the files of the thesis's MT6D (its Table 3.1 and section 3.2.1) made a configuration of the classic
//! profile (docs/classic.md section 11).

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use classic::keys::SessionKey;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// Settings of Table 3.1 without a counterpart, and why.
const WITHOUT_COUNTERPART: [(&str, &str); 13] = [
    ("bridging_nic", "hashed addresses are bound to no interface"),
    ("internal_nic", "the kernel routes to protected hosts"),
    ("log_handlers", "messages go to standard error"),
    ("log_file", "messages go to standard error"),
    ("log_level", "`RUST_LOG` in the environment sets it"),
    ("packets", "packets are always tunnelled"),
    ("firewall", "it is always set up"),
    ("routes", "routes are always made"),
    ("flow_label", "flow labels are zero"),
    ("urand", "randomness comes from the kernel"),
    ("users_location", "the file is named on the command line"),
    ("ethers_location", "the file is named on the command line"),
    ("profiles_location", "the file is named on the command line"),
];

/// Something about a line of a file.
#[derive(Debug, PartialEq, Eq)]
struct Remark {
    file: PathBuf,
    line: usize,
    text: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.text)
    }
}

/// A file with its name.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl<'a> Source<'a> {
    fn remark(&self, line: usize, text: impl Into<String>) -> Remark {
        Remark { file: self.path.to_owned(), line, text: text.into() }
    }

    /// Lines with words on them, numbered from 1, without comments.
    fn lines(&self, comments: &'static [char]) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        let lines = self.text.lines().enumerate();
        let lines =
            lines.map(move |(index, line)| (index + 1, line.split(comments).next().unwrap_or("").trim()));
        lines.filter(|(_, line)| !line.is_empty())
    }
}

/// What the conversion found, besides its result.
#[derive(Default)]
struct Remarks {
    warnings: Vec<Remark>,
    errors: Vec<Remark>,
}

/// What mt6d.ini sets.
struct Settings {
    external: String,
    rotation: u32,
    rotation_spread: Option<u32>,
    lifetime: Option<u32>,
    cipher: &'static str,
    encrypt: bool,
    regen_interval: u32,
    regen_window: u32,
}

/// Reads the four files, writes the configuration to standard output and what cannot be taken over to standard error.
pub(crate) fn run(ini: &Path, users: &Path, ethers: &Path, profiles: &Path) -> Result<(), Failure> {
    let mut texts = Vec::new();
    for path in [ini, users, ethers, profiles] {
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        texts.push(
            text.map_err(|error| Failure::Message(format!("cannot read {}: {error}", path.display())))?,
        );
    }
    let source = |index: usize, path| Source { path, text: &texts[index] };
    let mut remarks = Remarks::default();
    let configuration =
        convert(&source(0, ini), &source(1, users), &source(2, ethers), &source(3, profiles), &mut remarks);
    for warning in &remarks.warnings {
        eprintln!("sidestep: warning: {warning}");
    }
    if !remarks.errors.is_empty() {
        let errors: Vec<String> = remarks.errors.iter().map(ToString::to_string).collect();
        return Err(Failure::Message(errors.join("\nsidestep: ")));
    }
    crate::terminal::print(configuration.as_str())
}

fn convert(
    ini: &Source<'_>,
    users: &Source<'_>,
    ethers: &Source<'_>,
    profiles: &Source<'_>,
    remarks: &mut Remarks,
) -> Zeroizing<String> {
    let settings = read_ini(ini, remarks);
    let users: HashMap<&str, Ipv6Addr> = read_pairs(users, "an IPv6 address and a host name", Some, remarks)
        .into_iter()
        .map(|(address, name)| (name, address))
        .collect();
    let ethers: HashMap<Ipv6Addr, String> =
        read_pairs(ethers, "an IPv6 address and a MAC address", mac, remarks).into_iter().collect();

    let mut text = Zeroizing::new(String::with_capacity(4096 + 2 * profiles.text.len()));
    text.push_str(
        "# From the files of MT6D. The classic profile is not authenticated: for research, not for protection.\n",
    );
    // Writing to a String cannot fail.
    let _ = write!(text, "\n[node]\nexternal = {:?}\n", settings.external);
    for (line, words) in profiles.lines(&['#']) {
        let [source, destination, key] = words.split_whitespace().collect::<Vec<_>>()[..] else {
            remarks
                .errors
                .push(profiles.remark(line, "expected a source host, a destination host and a session key"));
            continue;
        };
        let mut known = |name| {
            let address = users.get(name).copied();
            if address.is_none() {
                remarks.errors.push(profiles.remark(line, format!("the file of users has no host {name:?}")));
            }
            address
        };
        let (Some(local), Some(remote)) = (known(source), known(destination)) else { continue };
        if key.parse::<SessionKey>().is_err() {
            remarks.errors.push(profiles.remark(line, "the session key is not 128 hexadecimal digits"));
            continue;
        }
        let macs = (ethers.get(&local), ethers.get(&remote));
        if let (Some(_), None) | (None, Some(_)) = macs {
            let warning = "one MAC address is known and not the other: neither is hashed";
            remarks.warnings.push(profiles.remark(line, warning));
        }
        let name = format!("{source}-{destination}");
        let _ = write!(
            text,
            "\n[[peer]]\nname = {name:?}\nprofile = \"classic\"\nlocal_address = \"{local}\"\n\
             remote_address = \"{remote}\"\n"
        );
        if let (Some(local), Some(remote)) = macs {
            let _ = write!(text, "local_mac = \"{local}\"\nremote_mac = \"{remote}\"\n");
        }
        let _ = writeln!(text, "session_key = \"{key}\"");
        write_settings(&mut text, &settings);
    }
    text
}

fn write_settings(text: &mut String, settings: &Settings) {
    let cipher = if settings.encrypt { settings.cipher } else { "none" };
    let _ = write!(text, "cipher = \"{cipher}\"\nrotation = \"{}s\"\n", settings.rotation);
    if let Some(spread) = settings.rotation_spread {
        let _ = writeln!(text, "rotation_spread = \"{spread}s\"");
    }
    if let Some(lifetime) = settings.lifetime {
        let _ = writeln!(text, "lifetime = \"{lifetime}s\"");
    }
    let _ = match settings.regen_interval {
        0 => writeln!(text, "key_exchange = \"off\""),
        interval => {
            write!(
                text,
                "key_exchange = \"{interval}s\"\nkey_exchange_window = \"{}s\"\n",
                settings.regen_window
            )
        }
    };
}

fn read_ini(ini: &Source<'_>, remarks: &mut Remarks) -> Settings {
    let mut settings = Settings {
        external: "eth0".to_owned(),
        rotation: 10,
        rotation_spread: None,
        lifetime: None,
        cipher: "aes-256-cbc",
        encrypt: true,
        regen_interval: 86_400,
        regen_window: 30,
    };
    for (line, setting) in ini.lines(&['#', ';']) {
        if setting.starts_with('[') {
            continue;
        }
        let Some((name, value)) = setting.split_once('=') else {
            remarks.errors.push(ini.remark(line, "not a setting: write `name = value`"));
            continue;
        };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let number = || value.parse::<u32>().map_err(|_| "a number of seconds");
        let result = match name.as_str() {
            "external_nic" => {
                settings.external = value.to_owned();
                Ok(())
            }
            "rotation_time" => number().map(|seconds| settings.rotation = seconds),
            "rotation_spread" => number().map(|seconds| settings.rotation_spread = Some(seconds)),
            "lifetime" => number().map(|seconds| settings.lifetime = Some(seconds)),
            "regen_interval" => number().map(|seconds| settings.regen_interval = seconds),
            "regen_window" => number().map(|seconds| settings.regen_window = seconds),
            "encrypt" => truth(value).map(|encrypt| settings.encrypt = encrypt),
            "crypt_type" => cipher(value).map(|cipher| settings.cipher = cipher),
            "hash_type" => match value.to_ascii_lowercase().replace('-', "").as_str() {
                "sha256" => Ok(()),
                _ => Err("SHA-256, the only hash here"),
            },
            _ => {
                let known = WITHOUT_COUNTERPART.iter().find(|(known, _)| *known == name);
                remarks.warnings.push(match known {
                    Some((_, why)) => ini.remark(line, format!("`{name}` has no counterpart here: {why}")),
                    None => ini.remark(line, format!("unknown setting `{name}`")),
                });
                Ok(())
            }
        };
        if let Err(expected) = result {
            remarks.errors.push(ini.remark(line, format!("`{name}` is not {expected}")));
        }
    }
    settings
}

fn truth(value: &str) -> Result<bool, &'static str> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("true or false"),
    }
}

fn cipher(value: &str) -> Result<&'static str, &'static str> {
    match value.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "aes" | "aes256" | "aes256cbc" => Ok("aes-256-cbc"),
        "aes128" | "aes128cbc" => Ok("aes-128-cbc"),
        _ => Err("aes-256-cbc or aes-128-cbc, the ciphers here"),
    }
}

/// Six bytes in hexadecimal, each of one or two digits as in ethers(5), written with two.
fn mac(text: &str) -> Option<String> {
    let bytes: Option<Vec<String>> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok().map(|byte| format!("{byte:02x}")))
        .collect();
    bytes.filter(|bytes| bytes.len() == 6).map(|bytes| bytes.join(":"))
}

/// Lines of an address and something else, in either order.
fn read_pairs<'a, T>(
    source: &Source<'a>,
    expected: &str,
    parse: impl Fn(&'a str) -> Option<T>,
    remarks: &mut Remarks,
) -> Vec<(Ipv6Addr, T)> {
    let mut pairs = Vec::new();
    for (line, words) in source.lines(&['#']) {
        let pair = match words.split_whitespace().collect::<Vec<_>>()[..] {
            [first, second] => {
                let (address, other) = match first.parse::<Ipv6Addr>() {
                    Ok(address) => (Some(address), second),
                    Err(_) => (second.parse().ok(), first),
                };
                address.zip(parse(other))
            }
            _ => None,
        };
        match pair {
            Some(pair) => pairs.push(pair),
            None => remarks.errors.push(source.remark(line, format!("not {expected}"))),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn convert_texts(texts: [&str; 4]) -> (String, Remarks) {
        let names = ["mt6d.ini", "users", "ethers", "profiles"];
        let source = |index: usize| Source { path: Path::new(names[index]), text: texts[index] };
        let mut remarks = Remarks::default();
        let text = convert(&source(0), &source(1), &source(2), &source(3), &mut remarks);
        (text.to_string(), remarks)
    }

    #[test]
    fn what_is_wrong_is_named_with_file_and_line() {
        let (_, remarks) = convert_texts([
            "[mt6d]\nrotation_time = soon\nhash_type = md5\nspeed = 9\nurand = /dev/urandom\nnonsense\n",
            "2001:db8::1 a\nb 2001:db8::2\nc\n",
            "2001:db8::1 00:ab:cd:11:22\n",
            "a b 00\na nobody 00\n",
        ]);
        let errors: Vec<String> = remarks.errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "mt6d.ini:2: `rotation_time` is not a number of seconds",
                "mt6d.ini:3: `hash_type` is not SHA-256, the only hash here",
                "mt6d.ini:6: not a setting: write `name = value`",
                "users:3: not an IPv6 address and a host name",
                "ethers:1: not an IPv6 address and a MAC address",
                "profiles:1: the session key is not 128 hexadecimal digits",
                "profiles:2: the file of users has no host \"nobody\"",
            ]
        );
        let warnings: Vec<String> = remarks.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "mt6d.ini:4: unknown setting `speed`",
                "mt6d.ini:5: `urand` has no counterpart here: randomness comes from the kernel",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_files_panic(texts in prop::array::uniform4("(\\PC{0,20}[=: \n]){0,8}")) {
            let [ini, users, ethers, profiles] = &texts;
            let _ = convert_texts([ini, users, ethers, profiles]);
        }
    }
}
