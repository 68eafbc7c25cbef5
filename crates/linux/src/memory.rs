//! Memory that a process has no use for any more.

use std::ops::Range;

use crate::error::{Context, Error, Result};

const MAPPINGS: &str = "/proc/self/smaps";

/// Gives the pages of the program's own files back that only its start has used: its code and constants, of which the kernel
/// maps sixteen pages for each one that is touched. What is needed again is mapped again, from the page cache. Returns how
/// many bytes were given back.
///
/// Call it when the start is over.
///
/// # Errors
/// When `/proc` cannot be read, or the kernel refuses.
pub fn give_back_start() -> Result<usize> {
    let text = std::fs::read_to_string(MAPPINGS).context(|| MAPPINGS)?;
    let mut given = 0;
    for (range, resident) in unchanged_files(&text) {
        // SAFETY: the mapping is of a file, private, not writable, and none of its pages is a copy of this process': each is read
        // from the file again when it is touched, with the same content, as long as the file stays what it is. The kernel
        // refuses to write to a program that runs (ETXTBSY), and its libraries are replaced, not written to.
        let result =
            unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED) };
        if result < 0 {
            return Err(Error::last("madvise MADV_DONTNEED"));
        }
        given += resident;
    }
    Ok(given)
}

/// Where files are mapped that cannot be written to, and of which no page was changed (as relocation does), be it in memory or
/// swapped out; and how many bytes of them are there.
fn unchanged_files(smaps: &str) -> Vec<(Range<usize>, usize)> {
    let mut all = Vec::new();
    let (mut current, mut resident, mut copied) = (None, 0, 0);
    for line in smaps.lines() {
        if let Some(kilobytes) = field(line, "Rss:") {
            resident = kilobytes * 1024;
        } else if let Some(kilobytes) = field(line, "Anonymous:") {
            copied = kilobytes;
        } else if let Some(swapped) = field(line, "Swap:") {
            // The last of the three.
            let unchanged = current.take().filter(|_| copied == 0 && swapped == 0 && resident > 0);
            all.extend(unchanged.map(|range| (range, resident)));
        } else if !line.split_once(' ').is_some_and(|(name, _)| name.ends_with(':')) {
            current = file(line);
        }
    }
    all
}

fn field(line: &str, name: &str) -> Option<usize> {
    line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()
}

/// `559aa017f000-559aa0df8000 r-xp 005c0000 fe:00 1234   /usr/bin/sidestep`
fn file(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_whitespace();
    let (range, permissions, path) = (words.next()?, words.next()?, words.nth(3)?);
    let is_file = path.starts_with('/') && permissions.starts_with("r-") && permissions.ends_with('p');
    let (start, end) = range.split_once('-').filter(|_| is_file)?;
    let parse = |text| usize::from_str_radix(text, 16).ok();
    Some(parse(start)?..parse(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_file_still_has_is_given_back() {
        let swapped = |head: &str, rss: u32, copied: u32, swapped: u32| {
            format!(
                "{head}\nSize: 64 kB\nRss: {rss} kB\nPss: 9 kB\nAnonymous: {copied} kB\nKSM: 0 kB\n\
                 Swap: {swapped} kB\nSwapPss: 0 kB\nVmFlags: rd mr\n"
            )
        };
        let mapping = |head, rss, copied| swapped(head, rss, copied, 0);
        let text = [
            mapping("1000-2000 r--p 00000000 fe:00 7   /usr/bin/a program", 4, 0),
            mapping("2000-5000 r-xp 00001000 fe:00 7   /usr/bin/a program", 12, 0),
            mapping("5000-6000 r--p 00004000 fe:00 7   /usr/bin/a program", 4, 4),
            swapped("5000-6000 r--p 00004000 fe:00 7   /usr/bin/a program", 4, 0, 4),
            mapping("6000-7000 rw-p 00005000 fe:00 7   /usr/bin/a program", 4, 0),
            mapping("7000-8000 rw-p 00000000 00:00 0   [heap]", 4, 4),
            mapping("8000-9000 r-xp 00000000 00:00 0   [vdso]", 4, 0),
            mapping("9000-a000 r--s 00000000 fe:00 8   /usr/lib/shared", 4, 0),
            mapping("a000-b000 r--p 00000000 00:00 0", 4, 0),
            mapping("b000-c000 r--p 00000000 fe:00 9   /usr/lib/never-touched", 0, 0),
        ]
        .concat();
        assert_eq!(unchanged_files(&text), [(0x1000..0x2000, 4096), (0x2000..0x5000, 12_288)]);
    }

    #[test]
    fn a_program_goes_on_without_what_its_start_has_used() {
        let said = format!("{:?}", (1..4).map(|number| number * 7).collect::<Vec<_>>());
        assert!(give_back_start().unwrap() > 0);
        assert_eq!(said, format!("{:?}", (1..4).map(|number| number * 7).collect::<Vec<_>>()));
    }
}
