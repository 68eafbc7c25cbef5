//! The page of examples: what each is for, and where it runs.

use std::fmt::Write as _;
use std::path::Path;

use super::explain::{At, explain};

const HEAD: &str = "# Examples of packet scripts\n\n\
    Written by `UPDATE_REFERENCE=1 cargo test -p sidestep cookbook` from `examples/scripts`: what the first sentence of each \
    script says, and where it runs at ingress of an interface ([two tiers](scripting.md#two-tiers)): in the *kernel*, in *both*, \
    where Lua gets what the kernel hands over, or in *Lua*. Each has its tests (`sidestep script test examples/scripts/*.lua`), \
    and is loaded at a hook of a router by the acceptance tests. Copy one, change what is written in capital letters, and run \
    its tests.\n\n\
    | script | what it does | runs in |\n|---|---|---|\n";

/// What stands in `docs/scripting-cookbook.md`.
fn page(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("the examples");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "lua")).collect();
    files.sort_unstable();
    let mut page = HEAD.to_owned();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a script");
        let name = file.file_name().expect("a name").to_string_lossy();
        let sentence = first_sentence(&source);
        writeln!(page, "| [{name}](../examples/scripts/{name}) | {sentence} | {} |", tier(&file, &source))
            .expect("a text");
    }
    page
}

fn first_sentence(source: &str) -> String {
    let comment = source.lines().map_while(|line| line.strip_prefix("-- "));
    let comment = comment.collect::<Vec<_>>().join(" ");
    comment.split_once(". ").map_or(comment.clone(), |(first, _)| format!("{first}."))
}

/// Where the functions run that packets are given to.
fn tier(file: &Path, source: &str) -> &'static str {
    let function = match source.contains("function process_packet(") {
        true => "process_packet",
        false => {
            let named =
                source.lines().find_map(|line| Some(line.strip_prefix("function ")?.split_once('(')?.0));
            named.expect("a function that packets are given to")
        }
    };
    let mut out = Vec::new();
    let runs = explain(file, function, At::default(), &mut out).expect("writing to memory");
    match String::from_utf8_lossy(&out).lines().next() {
        Some(first) if runs && first.contains("hands over") => "both",
        Some(_) if runs => "kernel",
        _ => "Lua",
    }
}

#[test]
fn the_page_of_examples_is_what_the_examples_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (file, now) = (root.join("docs/scripting-cookbook.md"), page(&root.join("examples/scripts")));
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&file, &now).expect("docs/scripting-cookbook.md can be written");
    }
    assert_eq!(
        std::fs::read_to_string(&file).unwrap_or_default(),
        now,
        "it is not current: UPDATE_REFERENCE=1 cargo test -p sidestep cookbook"
    );
}
