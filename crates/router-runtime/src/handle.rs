//! A gateway that runs, for those who are not its thread: it is started, given another configuration, and ended.

use std::fs::File;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::event::Waker;
use tracing::error;

use super::error::Error;
use super::router::{Command, Router, TunnelBeside};
use config::RouterConfig;
use config::run::RunOptions;
use control::{Call, Request, Server};

/// One that was killed while it started a program leaves its lock to that for a moment.
const DYING: Duration = Duration::from_secs(1);

/// A gateway that runs. It ends when this is dropped.
pub struct RouterThread {
    handle: RouterHandle,
    thread: Option<JoinHandle<()>>,
    _server: Server,
    /// There is no other in this network namespace.
    _only: File,
}

/// What gives a gateway that runs another configuration.
#[derive(Clone)]
pub struct RouterHandle {
    commands: Sender<Command>,
    waker: Waker,
}

impl RouterThread {
    /// Sets the gateway up, all of it or nothing, and keeps it.
    ///
    /// `tunnel` is a tunnel in the same configuration. Without one, who asks for the configuration to
    /// be read again is handed to `reload`, on the control socket's thread. Where the gateway ends and nobody has told it to,
    /// `ended` is called, on its thread: what is in force stays, and nobody looks after it any more.
    pub fn start(
        options: &RunOptions,
        gateway: RouterConfig,
        tunnel: Option<TunnelBeside>,
        reload: impl Fn(Call) + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Error> {
        let (commands, received) = channel();
        let waker = Waker::new()?;
        // With a tunnel the path that was given is that of its socket.
        let given = options.socket.clone().filter(|_| tunnel.is_none());
        let socket = given.map_or_else(control::socket_of_gateway, Ok)?;
        let name = options.file.file_stem().unwrap_or_default().to_string_lossy();
        let state = options.state_dir.join(format!("{name}-gateway.json"));
        let server = {
            let (commands, waker, standalone) = (commands.clone(), waker.clone(), tunnel.is_none());
            Server::start(&socket, move |call: Call| match call.request {
                Request::Reload { .. } | Request::Confirm if standalone => reload(call),
                _ => {
                    let _ = commands.send(Command::Call(call));
                    waker.wake();
                }
            })?
        };
        // One that has another control socket has another journal, and would take this one's tables for what is left.
        let only = control::lock_beside(&control::socket_of_gateway()?, DYING)?.ok_or(Error::Another)?;
        let (ready, is_ready) = channel();
        let (own_waker, journal, file) =
            (waker.clone(), socket.with_extension("journal"), options.file.clone());
        let run = move || {
            let unasked = Unasked(Some(ended));
            match Router::set_up(gateway, &journal, state, tunnel, &own_waker) {
                Ok(mut router) => {
                    router.file = file;
                    let _ = ready.send(Ok(()));
                    if let Err(error) = router.run(&own_waker, &received) {
                        error!("the gateway cannot go on: {error}");
                        return;
                    }
                    router.end();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
            unasked.end();
        };
        let thread = std::thread::Builder::new().name("gateway".into()).spawn(run)?;
        is_ready.recv().map_err(|_| Error::Ended)??;
        Ok(RouterThread {
            handle: RouterHandle { commands, waker },
            thread: Some(thread),
            _server: server,
            _only: only,
        })
    }

    /// What gives it another configuration.
    pub fn handle(&self) -> RouterHandle {
        self.handle.clone()
    }
}

/// Calls what it has when it is dropped, as in a panic.
struct Unasked<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Unasked<F> {
    fn end(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Unasked<F> {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

impl RouterHandle {
    /// Another configuration in the place of the one that is in force, which is returned; or that stays, where the other
    /// cannot be.
    pub fn reload(&self, gateway: Box<RouterConfig>) -> Result<Box<RouterConfig>, Error> {
        let (answer, result) = channel();
        self.send(Command::Reload(gateway, answer));
        result.recv().unwrap_or(Err(Error::Ended))
    }

    fn send(&self, command: Command) {
        // It ends only at its command, or has said why.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for RouterThread {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_or_returns_early_is_told_of_and_one_that_was_told_to_end_is_not() {
        let (tell, told) = channel();
        let spawn = |body: fn() -> bool| {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let unasked = Unasked(Some(move || tell.send(()).expect("the test")));
                if body() {
                    unasked.end();
                }
            })
        };
        assert!(spawn(|| panic!("as of a bug")).join().is_err());
        assert_eq!(told.try_recv(), Ok(()));
        spawn(|| false).join().unwrap();
        assert_eq!(told.try_recv(), Ok(()));
        spawn(|| true).join().unwrap();
        assert!(told.try_recv().is_err());
    }
}
