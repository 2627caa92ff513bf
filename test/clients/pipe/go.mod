module example.com/memcached-operator/test/clients/pipe

go 1.26.0
