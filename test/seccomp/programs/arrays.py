"""numpy with its BLAS threads."""

import numpy
from multiprocessing import Pool


def trace(seed):
    generator = numpy.random.default_rng(seed)
    square = generator.random((300, 300))
    return bool(numpy.allclose(square @ numpy.linalg.inv(square), numpy.eye(300), atol=1e-6))


if __name__ == "__main__":
    with Pool(2) as pool:
        print(pool.map(trace, range(4)))
    print(numpy.fft.fft(numpy.ones(8)).real.tolist()[0])
