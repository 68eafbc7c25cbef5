//! A gateway without a tunnel: the program's main thread, which reads the configuration again when it is asked to, and looks
//! after the process of packet scripts.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use linux::event::{Events, Interest, Poller, Request as Signal, Signals, Waker};
use linux::process::{self, Capability};
use script_host::supervisor::Scripts;
use tracing::{info, warn};

use super::{Error, RouterThread, Unconfirmed};
use crate::unconfirmed::taken_back;
use config::run::RunOptions;
use config::{Configured, RouterConfig};
use control::{Reply, Request};

const SIGNALS: u64 = 0;
const CALLS: u64 = 1;

/// Runs it, until `signals` tell it to end.
pub fn run(options: &RunOptions, signals: Signals, gateway: RouterConfig) -> Result<(), Error> {
    if !process::may_administer_network() {
        return Err(Error::Privilege);
    }
    let socket = options.socket.clone().map_or_else(control::socket_of_gateway, Ok)?;
    confine(options, &socket)?;
    let (send, calls) = channel();
    let waker = Waker::new()?;
    let called = waker.clone();
    let mut wanted = gateway.scripts.clone();
    let (tell, ended) = channel();
    let tells = waker.clone();
    let reload_asked = move |call| {
        let _ = send.send(call);
        called.wake();
    };
    let running = RouterThread::start(options, gateway, None, reload_asked, move || {
        let _ = tell.send(());
        tells.wake();
    })?;
    // The script host is a child, which needs all of them. A script may be one of another configuration.
    process::keep_capabilities(&[
        Capability::CAP_NET_ADMIN,
        Capability::CAP_NET_RAW,
        Capability::CAP_BPF,
        Capability::CAP_PERFMON,
    ])?;
    let scripts = Scripts::start(&wanted)?;
    start_hook(options)?;
    let poller = Poller::new()?;
    poller.add(&signals, SIGNALS, Interest::Readable)?;
    poller.add(&waker, CALLS, Interest::Readable)?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    info!(event = "gateway_up", "the gateway is up");
    let mut events = Events::with_capacity(2);
    let mut unconfirmed = Unconfirmed::start(options.confirm);
    let result = loop {
        poller.wait(&mut events, unconfirmed.left())?;
        waker.drain();
        if ended.try_recv().is_ok() {
            break Err(Error::Ended);
        }
        for call in calls.try_iter() {
            let Request::Reload { confirm_ms } = call.request else {
                // The server hands over nothing else.
                call.answer(unconfirmed.confirm());
                continue;
            };
            let confirm = confirm_ms.map(|ms| Duration::from_millis(ms.into()));
            match reload(options, &running, confirm, &mut unconfirmed, &mut wanted) {
                Ok(()) => scripts.apply(&wanted, Some(call)),
                Err(why) => call.answer(Reply::Error(why.to_string())),
            }
        }
        match signals.read()? {
            Some(Signal::Stop) => break Ok(()),
            Some(Signal::Reload) => {
                let reloaded = reload(options, &running, None, &mut unconfirmed, &mut wanted);
                if reloaded.is_ok() {
                    scripts.apply(&wanted, None);
                }
            }
            None => {}
        }
        match unconfirmed.expired() {
            Some(Some((before, scripts_before))) => match running.handle().reload(before) {
                Ok(_) => {
                    warn!(event = "taken_back", "{}", taken_back(&options.file));
                    wanted = scripts_before;
                    scripts.apply(&wanted, None);
                }
                Err(why) => {
                    warn!("nobody has confirmed the configuration, but it cannot be taken back: {why}");
                }
            },
            Some(None) => break Err(Error::NotConfirmed),
            None => {}
        }
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    result
}

/// Confines the daemon to its folders and what it needs: before its first thread.
///
/// # Errors
/// Where a folder cannot be made, or the kernel refuses.
pub fn confine(options: &RunOptions, socket: &Path) -> linux::Result<()> {
    let folders = control::folders_of(socket);
    let folders = folders.iter().chain([&options.state_dir]).map(PathBuf::as_path);
    for missing in linux::confine::confine(folders)? {
        info!("this kernel has no {missing}: the daemon is confined without it");
    }
    Ok(())
}

/// Has the program run at each event that the configuration names, if it does. To be called once this process is confined.
///
/// # Errors
/// Where there is no thread to be had.
pub fn start_hook(options: &RunOptions) -> std::io::Result<()> {
    options.on_event.as_deref().map_or(Ok(()), events::start_hook)
}

/// Reads the configuration again, and tells the log and the caller what came of it. `wanted`: its scripts, which are not yet
/// loaded.
fn reload(
    options: &RunOptions,
    running: &RouterThread,
    confirm: Option<Duration>,
    unconfirmed: &mut Unconfirmed<(Box<RouterConfig>, Vec<Configured>)>,
    wanted: &mut Vec<Configured>,
) -> Result<(), Error> {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
    let result = if unconfirmed.waits() {
        Err(Error::Unconfirmed)
    } else {
        load(options).and_then(|gateway| {
            let scripts = gateway.scripts.clone();
            let before = running.handle().reload(Box::new(gateway))?;
            Ok((before, std::mem::replace(wanted, scripts)))
        })
    };
    let result = result.map(|before| unconfirmed.changed(confirm, before));
    match &result {
        Ok(()) => info!(event = "reloaded", "configuration read again"),
        Err(why) => warn!(event = "reload_refused", "the configuration stays as it was: {why}"),
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    result
}

fn load(options: &RunOptions) -> Result<RouterConfig, Error> {
    config::load(&options.file)?.gateway.ok_or_else(|| Error::NoRouter(options.file.clone()))
}
