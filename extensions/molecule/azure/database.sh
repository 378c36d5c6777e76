#!/bin/sh
# Be the MySQL server of Slurm's accounting: it takes TLS alone, by a certificate of its own authority, which is printed.
# Environment: DATABASE_PASSWORD, of its user slurm.
set -eu
place=/etc/mysql/tls
mkdir -p "$place"
cd "$place"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj '/CN=Rehearsed authority' -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=ctl -keyout server.key -out server.csr 2>/dev/null
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -out server.pem 2>/dev/null
chown mysql server.key
cat >/etc/mysql/mariadb.conf.d/70-azure.cnf <<END
[mariadbd]
bind-address=0.0.0.0
require_secure_transport=ON
ssl_cert=$place/server.pem
ssl_key=$place/server.key
ssl_ca=$place/ca.pem
END
systemctl restart mariadb
mariadb <<END
CREATE OR REPLACE USER slurm@'%' IDENTIFIED BY '$DATABASE_PASSWORD' REQUIRE SSL;
GRANT ALL ON train_acct_db.* TO slurm@'%';
END
cat ca.pem
