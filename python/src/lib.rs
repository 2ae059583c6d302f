/*!
The client library as the Python module `starling._core`.

Python's layer above it is in `python/starling`. This crate connects, appends calls to one open job,
and hands the ends of tasks to Python in batches, from one thread of its own. No Python thread does
any upkeep. Every wait releases the interpreter's lock.
*/

mod connection;
mod dispatch;
mod failure;
mod job;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(connection::connect, module)?)?;
    module.add_class::<connection::Core>()?;
    module.add_class::<job::Job>()?;
    module.add_class::<job::Spec>()?;
    Ok(())
}
