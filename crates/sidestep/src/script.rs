//! `sidestep script`: packet scripts, checked and tested before they are let near packets.

mod explain;
mod kernel;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Subcommand;
use script::host::Module;
use script::testing::{self, Contents, Files, Outcome};
use script::vm::ScriptError;

/// Packet scripts: Lua programs that look at packets and change them
///
/// They run in tests alone so far: no hook of the kernel calls them yet.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  sidestep script check nat.lua\n  sidestep script test nat.lua")]
pub(crate) enum ScriptCommand {
    /// Run the tests that scripts carry, functions named test_*
    ///
    /// Each runs by itself, in a fresh Lua state and on a clock that it moves. `require` finds modules beside the script.
    #[command(
        after_help = "Examples:\n  sidestep script test nat.lua\n  sidestep script test examples/scripts/*.lua\n\n\
                            Exit status: 0 if all pass, 1 if one fails or a script cannot be loaded."
    )]
    Test {
        /// The scripts
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Load a script, and say which functions, tests and protocols it has
    #[command(
        after_help = "Examples:\n  sidestep script check nat.lua\n\nExit status: 0 if it can be loaded, 1 if not."
    )]
    Check {
        /// The script
        file: PathBuf,
    },
    /// Say for each line of a script whether it can run in the kernel, and what is made of it
    ///
    /// What is compiled runs in the kernel; if one line of a function cannot be, all of it runs in the user tier, with the
    /// same result. With CAP_BPF and CAP_NET_ADMIN the program is loaded, which has the kernel verify it, and not attached.
    #[command(after_help = "Examples:\n  sidestep script explain nat.lua --function snat\n\n\
                            Exit status: 0 if it can run in the kernel, 1 if not.")]
    Explain {
        /// The script
        file: PathBuf,
        /// The function that gets the packets
        #[arg(long, value_name = "NAME")]
        function: Option<String>,
        /// For devices whose packets have no link header, as TUN devices
        #[arg(long)]
        no_link: bool,
    },
}

impl ScriptCommand {
    /// Runs the command; whether all was well. What there is to say goes to `out`.
    pub(crate) fn run(&self, out: &mut dyn Write) -> io::Result<bool> {
        match self {
            Self::Test { files } => {
                let (mut passed, mut failed) = (0, 0);
                for file in files {
                    let (good, bad) = test(file, out)?;
                    passed += good;
                    failed += bad;
                }
                writeln!(out, "\n{passed} passed, {failed} failed")?;
                Ok(failed == 0)
            }
            Self::Explain { file, function, no_link } => match read(file) {
                Ok((source, folder)) => {
                    explain::explain(file, function.as_deref(), *no_link, &source, folder, out)
                }
                Err(why) => {
                    writeln!(out, "{}: {why}", file.display())?;
                    Ok(false)
                }
            },
            Self::Check { file } => match read(file) {
                Ok((source, folder)) => match testing::inspect(&file.display().to_string(), &source, &folder)
                {
                    Ok(contents) => {
                        write!(out, "{}", described(file, &contents))?;
                        Ok(true)
                    }
                    Err(error) => refused(out, &error),
                },
                Err(why) => {
                    writeln!(out, "{}: {why}", file.display())?;
                    Ok(false)
                }
            },
        }
    }
}

/// Runs the tests of one script; how many passed and failed. A script that cannot be loaded counts as one that failed.
fn test(file: &Path, out: &mut dyn Write) -> io::Result<(usize, usize)> {
    let path = file.display().to_string();
    writeln!(out, "{path}")?;
    let (source, folder) = match read(file) {
        Ok(read) => read,
        Err(why) => {
            writeln!(out, "  cannot be read: {why}")?;
            return Ok((0, 1));
        }
    };
    let contents = match testing::inspect(&path, &source, &folder) {
        Ok(contents) => contents,
        Err(error) => {
            refused(out, &error)?;
            return Ok((0, 1));
        }
    };
    if contents.tests.is_empty() {
        writeln!(out, "  no tests: there is no function whose name begins with test_")?;
    }
    let (mut passed, mut failed) = (0, 0);
    for name in &contents.tests {
        let outcome = testing::run(&path, &source, name, &folder);
        match &outcome.error {
            None => passed += 1,
            Some(_) => failed += 1,
        }
        write!(out, "{}", line(&outcome))?;
    }
    Ok((passed, failed))
}

fn line(outcome: &Outcome) -> String {
    let Some(error) = &outcome.error else { return format!("  ok    {}\n", outcome.name) };
    let mut text = format!("  FAIL  {}\n        {}\n", outcome.name, error.message);
    for frame in error.traceback.lines() {
        let _ = writeln!(text, "          {frame}");
    }
    for line in &outcome.log {
        let _ = writeln!(text, "        log: {line}");
    }
    text
}

fn refused(out: &mut dyn Write, error: &ScriptError) -> io::Result<bool> {
    writeln!(out, "  {}", error.message)?;
    for frame in error.traceback.lines() {
        writeln!(out, "    {frame}")?;
    }
    Ok(false)
}

fn described(file: &Path, contents: &Contents) -> String {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!(
        "{} can be loaded.\n  functions: {}\n  protocols: {}\n  tests:     {}\n",
        file.display(),
        list(&contents.functions),
        list(&contents.protocols),
        list(&contents.tests)
    )
}

type Read = (String, Rc<dyn Files>);

fn read(file: &Path) -> io::Result<Read> {
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    Ok((std::fs::read_to_string(file)?, Rc::new(Folder(folder))))
}

/// The folder of a script: its modules and captures are read from there, and from nowhere else.
struct Folder(PathBuf);

impl Files for Folder {
    fn module(&self, name: &str) -> Result<Option<Module>, String> {
        let path = self.0.join(format!("{}.lua", name.replace('.', "/")));
        match std::fs::read_to_string(&path) {
            Ok(source) => Ok(Some(Module { source, path: path.display().to_string() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn capture(&self, name: &str) -> Result<Vec<u8>, String> {
        let path = Path::new(name);
        if path.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err("a capture lies beside the script, or in a folder beside it".to_owned());
        }
        std::fs::read(self.0.join(path)).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &ScriptCommand) -> (bool, String) {
        let mut out = Vec::new();
        let good = command.run(&mut out).expect("writing to memory");
        (good, String::from_utf8(out).expect("text"))
    }

    fn script(source: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.lua");
        std::fs::write(&file, source).expect("a file");
        (folder, file)
    }

    #[test]
    fn the_examples_pass_their_tests() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts");
        let entries =
            std::fs::read_dir(folder).expect("the examples").filter_map(|entry| Some(entry.ok()?.path()));
        let files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|kind| kind == "lua")).collect();
        assert!(!files.is_empty());
        let (good, text) = run(&ScriptCommand::Test { files });
        assert!(good && !text.contains("no tests"), "{text}");
    }

    #[test]
    fn a_test_that_fails_is_told_with_its_line() {
        let (_folder, file) = script(
            "local test = require 'test'\nfunction process_packet(p) return NF_DROP end\n\
             function test_one() test.verdict(NF_DROP, test.udp('10.0.0.1', 1, '10.0.0.2', 2)) end\n\
             function test_two()\n  nf.log('seen')\n  test.verdict(NF_ACCEPT, test.udp('::1', 1, '::2', 2))\nend\n",
        );
        let (good, text) = run(&ScriptCommand::Test { files: vec![file.clone()] });
        assert!(!good);
        assert!(text.contains("  ok    test_one\n  FAIL  test_two\n"), "{text}");
        assert!(text.contains("a.lua:6: verdict NF_DROP, not NF_ACCEPT"), "{text}");
        assert!(text.contains("log: seen\n") && text.ends_with("\n1 passed, 1 failed\n"), "{text}");
        let (good, text) = run(&ScriptCommand::Check { file });
        assert!(good && text.contains("functions: process_packet\n"), "{text}");
    }

    #[test]
    fn a_script_that_cannot_be_loaded_fails() {
        let (_folder, file) = script("function process_packet(p)\n  return NF_DROP en\n");
        for command in
            [ScriptCommand::Check { file: file.clone() }, ScriptCommand::Test { files: vec![file] }]
        {
            let (good, text) = run(&command);
            assert!(!good && text.contains("a.lua:2: "), "{text}");
        }
    }
}
